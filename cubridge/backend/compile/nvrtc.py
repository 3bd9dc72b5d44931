"""NVRTC: CUDA text to a cubin, without a GPU, a driver or a toolkit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile


@dataclass(frozen=True, slots=True)
class NvrtcOutput:
    """`cubin` is None where compiling failed; `ptx` may be there all the same, for the lines of assembler errors. `lowered`: what
    the compiler calls the names that were asked for."""

    log: str
    cubin: bytes | None = field(repr=False)
    ptx: str = field(repr=False)
    lowered: Mapping[str, str] = field(default_factory=dict[str, str])


def run_nvrtc(
    name: str,
    source: SourceFile,
    headers: Mapping[str, SourceFile],
    options: Sequence[str],
    expressions: Sequence[str] = (),
) -> NvrtcOutput:
    """Compile one text, which the log calls `name`; `headers` are the only files that `#include "NAME"` finds. `expressions`:
    names of kernels that are wanted, templates with their arguments.
    Errors: CU805 without NVRTC."""
    nvrtc = _load()
    texts, names = [h.data for h in headers.values()], [n.encode() for n in headers]
    program = _checked(nvrtc.nvrtcCreateProgram(source.data, name.encode(), len(texts), texts, names))
    try:
        for expression in expressions:
            _checked(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        status = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])[0]
        log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode("utf-8", "replace")
        ptx = _text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).decode("utf-8", "replace")
        succeeded = status == nvrtc.nvrtcResult.NVRTC_SUCCESS
        cubin = _text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN) if succeeded else None
        lowered = {
            x: _checked(nvrtc.nvrtcGetLoweredName(program, x.encode())).decode() for x in expressions if succeeded
        }
        return NvrtcOutput(log.rstrip("\0 \n"), cubin, ptx, lowered)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@cache
def nvrtc_version() -> str:
    """What a cache key must hold of the compiler: its version, and the package that it came in if there is one."""
    major, minor = _checked(_load().nvrtcVersion())
    try:
        package = metadata.version("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        package = "unpackaged"
    return f"{major}.{minor} ({package})"


@cache
def system_include_dir() -> Path | None:
    """The headers of the CUDA runtime (`cuda_bf16.h` and its like), if they are installed."""
    from cuda.pathfinder import find_nvidia_header_directory

    found = find_nvidia_header_directory("cudart")
    return Path(found) if found else None


@cache
def _load() -> ModuleType:
    try:
        nvrtc = import_module("cuda.bindings.nvrtc")
        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise CuError(
            Diagnostic(
                "CU805",
                f"NVRTC, the CUDA compiler library, cannot be loaded: {error}",
                help="install the package again: `pip install -e .` brings it",
            ),
            exit_code=5,
        ) from error
    return nvrtc


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status.value != 0:
        raise CuError(Diagnostic("CU805", f"NVRTC failed: {status.name}"), exit_code=5)
    return values[0] if len(values) == 1 else tuple(values)


def _text(program: object, size: Callable[..., Any], read: Callable[..., Any]) -> bytes:
    status, length = size(program)
    if status.value != 0 or length == 0:
        return b""
    buffer = bytearray(length)
    _checked(read(program, buffer))
    return bytes(buffer)
