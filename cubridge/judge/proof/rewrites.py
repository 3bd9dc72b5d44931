"""Functions by others: identities of real numbers, one a line. Each is checked against numbers by the tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.nodes import Expr
from cubridge.ir.parser import parse_expr
from cubridge.ir.walk import substitute


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A function of `u` is `by`."""

    by: Expr

    def apply(self, args: tuple[Expr, ...]) -> Expr:
        (argument,) = args
        return substitute(self.by, {"u": argument})


_TEXTS: Final = {
    "exp2": "exp(u * LN2)",
    "log2": "log(u) * LOG2E",
    "rcp": "1 / u",
    "tanh_approx": "tanh(u)",
    "sqrt": "u ** 0.5",
    "rsqrt": "u ** -0.5",
    "erfc": "1 - erf(u)",
    "log1p": "log(1 + u)",
    "log1p_unit": "log(1 + u)",
    "expm1": "exp(u) - 1",
}

REWRITES: Final[Mapping[str, Rewrite]] = {fn: Rewrite(parse_expr(text)) for fn, text in _TEXTS.items()}
