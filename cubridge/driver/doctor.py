"""What is here of all that the tool can use, and what each missing part means."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Final

from cubridge.ir.diagnostics import CuError


@dataclass(frozen=True, slots=True)
class Part:
    """Something a user may have. `probe` says which one is there, or raises; `without`: what does not work if it is missing.
    `required`: nothing works then."""

    name: str
    probe: Callable[[], str]
    without: str
    required: bool = False


def examine_machine() -> tuple[list[str], bool]:
    """One line for each part, and whether every required one is there."""
    lines = [f"ok       python {sys.version.split()[0]}"]
    complete = True
    for part in PARTS:
        try:
            lines.append(f"ok       {part.name}: {part.probe()}")
        except (ImportError, CuError, metadata.PackageNotFoundError) as error:
            reason = error.diagnostics[0].message if isinstance(error, CuError) else str(error)
            lines.append(f"missing  {part.name}: {reason}; without it {part.without}")
            complete = complete and not part.required
    return lines, complete


def _package(name: str, module: str | None = None) -> Callable[[], str]:
    """The version of a package that imports."""

    def probe() -> str:
        import_module(module or name.replace("-", "_"))
        return metadata.version(name)

    return probe


def _emulator() -> str:
    from cubridge.backend.ptx.table import load_table

    return f"{len(load_table().rows)} instructions"


def _nvrtc() -> str:
    from cubridge.backend.compile.nvrtc import nvrtc_version

    return nvrtc_version()


def _gpu() -> str:
    import torch

    from cubridge.backend.gpu.device import find_gpu

    gpu = find_gpu()
    major, minor = gpu.capability
    return f"{torch.cuda.get_device_name(gpu.torch_device)}, compute capability {major}.{minor}"


def _required(name: str, module: str | None = None) -> Part:
    return Part(name, _package(name, module), "nothing works", required=True)


PARTS: Final = (
    _required("torch"),
    _required("numpy"),
    _required("lark"),
    _required("networkx"),
    _required("pycparser"),
    _required("tree-sitter"),
    _required("tree-sitter-cuda"),
    _required("z3-solver", "z3"),
    Part("NVRTC", _nvrtc, "nothing works", required=True),
    Part("emulator", _emulator, "nothing works", required=True),
    Part("cuda-core", _package("cuda-core", "cuda.core"), "kernels are not launched (pip install 'cubridge[cuda]')"),
    Part("GPU", _gpu, "kernels are checked on the value engine and the emulator alone"),
    Part("anthropic", _package("anthropic"), "its models propose nothing (pip install 'cubridge[anthropic]')"),
    Part("openai", _package("openai"), "compatible models propose nothing (pip install 'cubridge[openai]')"),
)
