"""Lifting any bytes, with the contract of the shipped text."""

from __future__ import annotations

from cubridge.frontend.contract import read_contract
from cubridge.frontend.cuda.lift import lift
from cubridge.frontend.cuda.text import folder_headers
from cubridge.ir.contract import instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType
from tests.frontend.cuda.kernels import KERNELS

_CONTRACT = read_contract(KERNELS / "sm80" / "attention_forward.toml")
_INSTANCE = instantiations(_CONTRACT, DType.BF16, 128)[0]


def direct_faults(data: bytes) -> tuple[Diagnostic, ...]:
    """The diagnostics of a text, none if it lifts; anything but a CuError passes through."""
    try:
        lift(SourceFile("kernel.cu", data), _CONTRACT, _INSTANCE, folder_headers(KERNELS))
    except CuError as error:
        return error.diagnostics
    return ()
