"""How the reader of references refuses: one function per kind of end, all with a place and a way out."""

from __future__ import annotations

from typing import NoReturn

from cubridge.ir.diagnostics import CuError, Diagnostic, Note, Refused
from cubridge.ir.source import NOWHERE, Span


def refuse(
    code: str, message: str, span: Span = NOWHERE, help: str | None = None, notes: tuple[Note, ...] = ()
) -> NoReturn:
    """The reference is understood and not supported."""
    raise Refused(Diagnostic(code, message, span, notes, help))


def fail(
    code: str, message: str, span: Span = NOWHERE, help: str | None = None, notes: tuple[Note, ...] = ()
) -> NoReturn:
    """The reference itself is at fault."""
    raise CuError(Diagnostic(code, message, span, notes, help))
