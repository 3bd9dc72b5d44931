"""Rule: a score that the mask hides is -inf, so that its weight is 0 whatever the other scores of the row are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.nodes import Assign, Call, Expr, If, Kernel, Name, Stmt, Unary
from cubridge.ir.walk import substitute

_HIDDEN: Final = Unary("-", Name("inf"))


def check_fills(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU226 for a value of `s` in the region `mask` that is neither `s` itself nor -inf."""
    values = (v for region in kernel.regions if region.name == "mask" for v in _scores(region.body, {}))
    for arm in (arm for value in values for arm in _arms(value)):
        if arm not in (Name("s"), _HIDDEN):
            help = "a finite score counts as soon as all others of its row are as small; what changes scores is `score`"
            yield Diagnostic("CU226", "the mask leaves a score other than `s` and -inf", arm.span, help=help)


def _scores(body: tuple[Stmt, ...], local: dict[str, Expr]) -> Iterator[Expr]:
    """What becomes of `s`, with the values of locals in their places."""
    for stmt in body:
        match stmt:
            case Assign(Name("s"), value):
                yield substitute(value, local)
            case Assign(Name(name), value):
                local[name] = substitute(value, local)
            case If(_, then):
                yield from _scores(then, local)
            case _:
                pass


def _arms(value: Expr) -> Iterator[Expr]:
    """What nested selections choose among."""
    match value:
        case Call("where", (_, yes, no)):
            yield from _arms(yes)
            yield from _arms(no)
        case _:
            yield value
