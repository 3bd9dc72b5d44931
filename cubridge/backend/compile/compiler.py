"""Kernel text to PTX and machine code, by content: the same texts, options and compiler are compiled once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from cubridge.backend.compile.cache import (
    CacheEntry,
    content_key,
    default_cache_dir,
    read_entry,
    read_ptx,
    write_entry,
    write_ptx,
)
from cubridge.backend.compile.headers import KERNELS_DIR, include_closure, uses_system_headers
from cubridge.backend.compile.log import SERIALISED, Resources, messages_of, ptx_places, resources_of, serialised_wgmma
from cubridge.backend.compile.nvrtc import NvrtcOutput, nvrtc_version, run_nvrtc, system_include_dir
from cubridge.backend.compile.targets import Target, check_shared_memory, find_target
from cubridge.ir.contract import Instantiation, LaunchContract, instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

_CACHE_VERSION = 2
_NAME = "kernel.cu"
"""What the compiler calls the text, wherever it lies: logs and cubins depend on content alone."""
FEW_SPILLS = 32
"""Bytes stored and loaded a thread, together. A register or two outside the inner loop costs less than a smaller tile."""
_PLACES = "-lineinfo"
_OPTIONS = ("--std=c++17", "--no-source-include", "--ptxas-options=-v", "--no-cache", _PLACES)
"""Where a driver is, NVRTC has a cache of its own, and what comes from there comes without the assembler's log."""
_TURNS: dict[str, Lock] = {}
"""By key: who comes while another thread compiles the same waits for it."""


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
    work = _Work.of(source, contract, instantiation, target, include_dirs)
    folder = default_cache_dir() if cache_dir is None else cache_dir
    with work.turn:
        entry = read_entry(folder, work.key)
        from_cache = entry is not None
        if entry is None:
            entry = _compile(work, folder)
    resources = _resources(entry, contract, source)
    warnings = tuple(m for m in messages_of(entry.log, work.files, {}) if m.severity == "warning")
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
        key=work.key,
        from_cache=from_cache,
    )


@dataclass(frozen=True, slots=True)
class Ptx:
    """One instantiation as PTX, with the CUDA line of each instruction. `files`: the texts by the names in it, the kernel's own
    first. `key`: hash of all that it was made from; what has the same is equal."""

    text: bytes = field(repr=False, compare=False)
    files: Mapping[str, SourceFile] = field(repr=False, compare=False)
    key: str


def compile_ptx(
    source: SourceFile,
    contract: LaunchContract,
    instantiation: Instantiation,
    *,
    include_dirs: Iterable[Path] = (KERNELS_DIR,),
    cache_dir: Path | None = None,
) -> Ptx:
    """The PTX that `compile_kernel` makes machine code of, on its way or alone. Errors: CU801, CU804 to CU806."""
    work = _Work.of(source, contract, instantiation, find_target(contract.arch), include_dirs)
    folder = default_cache_dir() if cache_dir is None else cache_dir
    with work.turn:
        ptx = read_ptx(folder, work.key)
        if ptx is None:
            output = run_nvrtc(_NAME, source, work.headers, work.ptx_options)
            ptx = _ptx_of(output)
            if output.cubin is None or not ptx:
                raise CuError(*_errors(output, work))
            write_ptx(folder, work.key, ptx)
    return Ptx(ptx, work.files, work.key)


def compile_unplaced(
    source: SourceFile,
    contract: LaunchContract,
    instantiation: Instantiation,
    include_dirs: Iterable[Path] = (KERNELS_DIR,),
) -> str:
    """PTX without places, which texts that do the same things share, as far as the compiler sees it. "" for a text that it refuses.
    Errors: CU801, CU804, CU805."""
    work = _Work.of(source, contract, instantiation, find_target(contract.arch), include_dirs)
    output = run_nvrtc(_NAME, source, work.headers, [o for o in work.ptx_options if o != _PLACES])
    return "" if output.cubin is None else output.ptx


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


@dataclass(frozen=True, slots=True)
class _Work:
    """What the compiler is given."""

    source: SourceFile
    headers: Mapping[str, SourceFile]
    target: Target
    options: tuple[str, ...]
    key: str

    @staticmethod
    def of(
        source: SourceFile,
        contract: LaunchContract,
        instantiation: Instantiation,
        target: Target,
        include_dirs: Iterable[Path],
    ) -> _Work:
        headers = include_closure(source, include_dirs)
        options = _options(instantiation, (source, *headers.values()))
        texts = [(name, header.digest) for name, header in headers.items()]
        key = content_key(_CACHE_VERSION, nvrtc_version(), source.digest, texts, target.name, options, contract.entry)
        return _Work(source, headers, target, options, key)

    @property
    def turn(self) -> Lock:
        return _TURNS.setdefault(self.key, Lock())

    @property
    def files(self) -> dict[str, SourceFile]:
        """By the names that the compiler's messages have; the text itself first."""
        return {_NAME: self.source, **self.headers}

    @property
    def cubin_options(self) -> tuple[str, ...]:
        return (f"--gpu-architecture={self.target.name}", *self.options)

    @property
    def ptx_options(self) -> tuple[str, ...]:
        return (f"--gpu-architecture={self.target.name.replace('sm_', 'compute_')}", *self.options)


def _options(instantiation: Instantiation, texts: Sequence[SourceFile]) -> tuple[str, ...]:
    options = (*_OPTIONS, *instantiation.definitions)
    if uses_system_headers(texts) and (system := system_include_dir()):
        return (*options, f"--include-path={system}")
    return options


def _compile(work: _Work, folder: Path) -> CacheEntry:
    """PTX and machine code, kept; PTX of a text that the assembler serialises too."""
    output = run_nvrtc(_NAME, work.source, work.headers, work.cubin_options)
    if output.cubin is None:
        raise CuError(*_errors(output, work))
    write_ptx(folder, work.key, _ptx_of(output))
    if serialised := serialised_wgmma(output.log):
        raise CuError(*serialised)
    entry = CacheEntry(output.cubin, output.log, resources_of(output.log))
    write_entry(folder, work.key, entry)
    return entry


def _ptx_of(output: NvrtcOutput) -> bytes:
    return output.ptx.rstrip("\0").encode()


def _errors(output: NvrtcOutput, work: _Work) -> tuple[Diagnostic, ...]:
    """The messages of a failed compile, those of the assembler at their CUDA lines."""
    messages = messages_of(output.log, work.files, ptx_places(output.ptx, work.files))
    errors = tuple(m for m in messages if m.severity == "error")
    return errors or (Diagnostic("CU806", f"{work.source.name} does not compile: {output.log.strip()[:500]}"),)


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
