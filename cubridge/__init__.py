"""CuBridge: adapt an expert CUDA attention kernel to the attention that a PyTorch function describes.

    adaptation = cubridge.adapt(attention, kernel="sm90a")
    print(adaptation.patch)
    fast = adaptation.compile()          # on a machine with a GPU
    out = fast(q, k, v)

Nothing is imported before it is used: torch takes longer to import than most work takes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cubridge.driver.adapt import adapt
    from cubridge.driver.adaptation import Adaptation
    from cubridge.driver.attention import attention
    from cubridge.driver.load import load
    from cubridge.driver.trace import trace
    from cubridge.frontend.reference.mods import from_mods
    from cubridge.ir.diagnostics import CuError, Refused
    from cubridge.ir.parser import parse
    from cubridge.ir.printer import to_text
    from cubridge.ir.spec import Shape
    from cubridge.passes.base import Pass, PassContext
    from cubridge.passes.own import register_pass

__version__ = "0.1.0"
__all__ = [
    "Adaptation", "CuError", "Pass", "PassContext", "Refused", "Shape", "adapt", "attention", "from_mods", "load", "parse",
    "register_pass", "to_text", "trace",
]  # fmt: skip

_HOMES: Final = {
    "Adaptation": "cubridge.driver.adaptation",
    "CuError": "cubridge.ir.diagnostics",
    "Pass": "cubridge.passes.base",
    "PassContext": "cubridge.passes.base",
    "Refused": "cubridge.ir.diagnostics",
    "Shape": "cubridge.ir.spec",
    "adapt": "cubridge.driver.adapt",
    "attention": "cubridge.driver.attention",
    "from_mods": "cubridge.frontend.reference.mods",
    "load": "cubridge.driver.load",
    "parse": "cubridge.ir.parser",
    "register_pass": "cubridge.passes.own",
    "to_text": "cubridge.ir.printer",
    "trace": "cubridge.driver.trace",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
