"""What NVRTC makes of a kernel's text, loaded; by content, on disk and in this process."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from cubridge.backend.compile.compiler import Ptx, compile_ptx
from cubridge.backend.launch.device import KernelText
from cubridge.backend.ptx.machine import Machine
from cubridge.backend.ptx.parser import parse_program
from cubridge.ir.contract import Instantiation
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile

_MOST_PROGRAMS: Final = 64


def machine_of(text: KernelText, form: Instantiation) -> tuple[Machine, str]:
    """The machine of a text's form, with the hash of all that it was made from.
    Errors: CU805 without NVRTC; CU831 a text that it refuses; CU830, CU838, CU839 as Machine."""
    try:
        ptx = compile_ptx(text.source, text.contract, form, include_dirs=text.include_dirs)
    except CuError as error:
        raise CuError(*map(_refused, error.diagnostics), exit_code=error.exit_code) from error
    return _loaded(ptx, text.contract.entry), ptx.key


@lru_cache(_MOST_PROGRAMS)
def _loaded(ptx: Ptx, entry: str) -> Machine:
    return Machine(parse_program(SourceFile("kernel.ptx", ptx.text), entry), ptx.files)


def _refused(diagnostic: Diagnostic) -> Diagnostic:
    return replace(diagnostic, code="CU831") if diagnostic.code == "CU806" else diagnostic
