"""Kernel text to machine code, by content: the same texts, options and compiler are compiled once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cubridge.backend.compile.cache import CacheEntry, content_key, default_cache_dir, read_entry, write_entry
from cubridge.backend.compile.headers import KERNELS_DIR, include_closure, uses_system_headers
from cubridge.backend.compile.log import SERIALISED, Resources, messages_of, ptx_places, resources_of, serialised_wgmma
from cubridge.backend.compile.nvrtc import NvrtcOutput, nvrtc_version, run_nvrtc, system_include_dir
from cubridge.backend.compile.targets import Target, check_shared_memory, find_target
from cubridge.ir.contract import Instantiation, LaunchContract, instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

_CACHE_VERSION = 1
_NAME = "kernel.cu"
"""What the compiler calls the text, wherever it lies: logs and cubins depend on content alone."""
FEW_SPILLS = 32
"""Bytes stored and loaded a thread, together. A register or two outside the inner loop costs less than a smaller tile."""
_OPTIONS = ("--std=c++17", "--no-source-include", "--ptxas-options=-v", "--no-cache")
"""Where a driver is, NVRTC has a cache of its own, and what comes from there comes without the assembler's log."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One instantiation in machine code. `shared_bytes`: dynamic shared memory of a block. `key`: hash of all of it."""

    source: SourceFile = field(repr=False)
    entry: str
    instantiation: Instantiation
    target: Target
    cubin: bytes = field(repr=False)
    resources: Resources
    shared_bytes: int
    warnings: tuple[Diagnostic, ...]
    log: str = field(repr=False)
    key: str
    from_cache: bool = field(compare=False)


def compile_kernel(
    source: SourceFile,
    contract: LaunchContract,
    instantiation: Instantiation,
    arch: str | None = None,
    *,
    include_dirs: Iterable[Path] = (KERNELS_DIR,),
    cache_dir: Path | None = None,
) -> Compiled:
    """Compile one instantiation for `arch` (the contract's own if None). Needs neither GPU nor toolkit.
    Errors: CU801 arch, CU802 a kernel of another one, CU803 shared memory, CU804 to CU808, CU810 what the compiler says."""
    target = _target(contract, arch)
    shared_bytes = shared_memory(contract, instantiation, target)
    headers = include_closure(source, include_dirs)
    options = _options(target, instantiation, (source, *headers.values()))
    texts = [(name, header.digest) for name, header in headers.items()]
    key = content_key(_CACHE_VERSION, nvrtc_version(), source.digest, texts, options, contract.entry)
    folder = default_cache_dir() if cache_dir is None else cache_dir
    entry = read_entry(folder, key)
    from_cache = entry is not None
    if entry is None:
        entry = _compile(source, headers, options)
        write_entry(folder, key, entry)
    files = {_NAME: source, **headers}
    resources = _resources(entry, contract, source)
    warnings = tuple(m for m in messages_of(entry.log, files, {}) if m.severity == "warning")
    return Compiled(
        source=source,
        entry=contract.entry,
        instantiation=instantiation,
        target=target,
        cubin=entry.cubin,
        resources=resources,
        shared_bytes=shared_bytes,
        warnings=warnings,
        log=entry.log,
        key=key,
        from_cache=from_cache,
    )


def compile_best(
    source: SourceFile,
    contract: LaunchContract,
    dtype: DType,
    head_dim: int,
    arch: str | None = None,
    *,
    include_dirs: Iterable[Path] = (KERNELS_DIR,),
    cache_dir: Path | None = None,
) -> Compiled:
    """The first instantiation of the contract that compiles without spills that count, else the one that spills least.
    Errors: as compile_kernel, CU810 only if every instantiation has it; CU809 for a dtype or head dim that the contract
    does not list."""
    directories = tuple(include_dirs)
    candidates: list[Compiled] = []
    serialised: list[CuError] = []
    for instantiation in listed_instantiations(contract, dtype, head_dim):
        try:
            compiled = compile_kernel(
                source, contract, instantiation, arch, include_dirs=directories, cache_dir=cache_dir
            )
        except CuError as error:
            if error.diagnostics[0].code != SERIALISED:
                raise
            serialised.append(error)
            continue
        if compiled.resources.spills <= FEW_SPILLS:
            return compiled
        candidates.append(compiled)
    if not candidates:
        raise serialised[0]
    return min(candidates, key=lambda c: c.resources.spills)


def listed_instantiations(contract: LaunchContract, dtype: DType, head_dim: int) -> tuple[Instantiation, ...]:
    """At least one form. Errors: CU809 where the contract has none for this element type and head dim."""
    forms = instantiations(contract, dtype, head_dim)
    if not forms:
        dtypes = ", ".join(name for name, _ in contract.dtypes)
        dims = ", ".join(str(d) for d in contract.head_dims)
        raise Refused(
            Diagnostic(
                "CU809",
                f"{contract.source} has no form for {dtype} and head dim {head_dim}",
                help=f"it is written for {dtypes} and head dim {dims}",
            )
        )
    return forms


def shared_memory(contract: LaunchContract, instantiation: Instantiation, target: Target) -> int:
    """Dynamic shared memory of a block, bytes. Errors: CU803 if the target has less."""
    macros = dict(instantiation.macros)
    need = int(evaluate_number(contract.shared_bytes, macros))
    check_shared_memory(need, target, macros, contract.shared_bytes.span)
    return need


def _target(contract: LaunchContract, arch: str | None) -> Target:
    own = find_target(contract.arch)
    target = own if arch is None else find_target(arch)
    if target is not own and not (contract.newer_archs and target.capability > own.capability):
        also = " and later" if contract.newer_archs else ""
        raise Refused(Diagnostic("CU802", f"{contract.source} is written for {own.name}{also}, not for {target.name}"))
    return target


def _options(target: Target, instantiation: Instantiation, texts: Sequence[SourceFile]) -> tuple[str, ...]:
    options = (f"--gpu-architecture={target.name}", *_OPTIONS, *instantiation.definitions)
    if uses_system_headers(texts) and (system := system_include_dir()):
        return (*options, f"--include-path={system}")
    return options


def _compile(source: SourceFile, headers: dict[str, SourceFile], options: Sequence[str]) -> CacheEntry:
    output = run_nvrtc(_NAME, source, headers, options)
    if output.cubin is None:
        raise CuError(*_errors(output, source, headers, options))
    if serialised := serialised_wgmma(output.log):
        raise CuError(*serialised)
    return CacheEntry(output.cubin, output.log, resources_of(output.log))


def _errors(
    output: NvrtcOutput,
    source: SourceFile,
    headers: dict[str, SourceFile],
    options: Sequence[str],
) -> tuple[Diagnostic, ...]:
    """The messages of a failed compile; a second one, with line numbers, gives assembler errors their CUDA lines."""
    if "ptxas application ptx input, line" in output.log:
        output = run_nvrtc(_NAME, source, headers, (*options, "-lineinfo"))
    files = {_NAME: source, **headers}
    messages = messages_of(output.log, files, ptx_places(output.ptx, files))
    errors = tuple(m for m in messages if m.severity == "error")
    return errors or (Diagnostic("CU806", f"{source.name} does not compile: {output.log.strip()}"),)


def _resources(entry: CacheEntry, contract: LaunchContract, source: SourceFile) -> Resources:
    if contract.entry not in entry.resources:
        found = ", ".join(entry.resources) or "none"
        raise CuError(
            Diagnostic(
                "CU808",
                f"{source.name} has no kernel `{contract.entry}`, which its launch contract names",
                help=f'kernels of this text: {found} (an entry must be extern "C")',
            )
        )
    return entry.resources[contract.entry]
