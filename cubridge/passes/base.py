"""What a pass is, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.nodes import Kernel
from cubridge.ir.source import NOWHERE, Span


def _ignore(message: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class PassContext:
    """`remark` takes what a pass says beside its result, such as tiles that it visits though they may be empty."""

    remark: Callable[[str], None] = field(default=_ignore)


@dataclass(frozen=True, slots=True)
class Pass(ABC):
    """A rewrite of kernels: pure, valid CuIR in, valid CuIR out, the same object when nothing applies. Fields are options.

    The first line of the docstring says what it does, the rest what it rewrites, requires and ensures. `example`: a pipeline
    over the kernel sm80 that ends with this pass."""

    name: ClassVar[str]
    example: ClassVar[str] = ""

    @abstractmethod
    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel: ...


def fault(code: str, message: str, span: Span = NOWHERE, help: str | None = None) -> CuError:
    """The error of a pass, or of its options."""
    return CuError(Diagnostic(code, message, span, help=help))


def refusal(code: str, message: str, span: Span = NOWHERE, help: str | None = None) -> Refused:
    """Input that is understood and that no pass can express."""
    return Refused(Diagnostic(code, message, span, help=help))
