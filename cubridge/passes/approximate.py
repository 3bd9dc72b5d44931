"""approximate: functions that the hardware has, in place of exact ones, where scores and weights are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from cubridge.ir.algebra.hosts import is_nonnegative
from cubridge.ir.nodes import Assign, Binary, Call, Expr, FloatLit, Kernel, Name, Node, Stmt, Unary
from cubridge.ir.walk import map_children
from cubridge.passes.base import Pass, PassContext, fault
from cubridge.passes.host_params import HostParams, without_unused_hosts
from cubridge.passes.options import Word
from cubridge.passes.regions import with_region
from cubridge.passes.scale import with_hosts
from cubridge.passes.softmax import LOG2E
from cubridge.passes.terms import Algebra, rebuilt, scaled

_STEMS: Final = {"score": "score", "row_update": "score", "row_probs": "weight"}
"""The regions that run per score, with the stem of their parameters' names."""
_NONE: Final = Word("")
FUNCTIONS: Final = ("exp", "log", "tanh", "divide")


@dataclass(frozen=True, slots=True)
class Approximate(Pass):
    """Use approximate functions, whose error is declared in `ir.functions`.
    rewrite:   exp(x)   -->   exp2(x * LOG2E), LOG2E joining the constant factors of x
               log(x)   -->   log2(x) * LN2
               tanh(x)  -->   tanh_approx(x)
               log1p(exp(-abs(x) * a))   -->   log1p_unit(exp(-abs(x) * a)), a > 0
               a / x    -->   a * rcp(x)
    `exact`: the functions to leave as they are, of exp, log, tanh, divide. Errors: CU504 for another word."""

    name: ClassVar[str] = "approximate"
    example: ClassVar[str] = 'rewrite-score{score="tanh(s * 0.02) * 50.0"},approximate'
    exact: Word = _NONE

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        left = [w.strip() for w in self.exact.value.split(",") if w.strip()]
        for word in left:
            if word not in FUNCTIONS:
                raise fault("CU504", f"`{word}` is none of {', '.join(FUNCTIONS)}", self.exact.span)
        for region, stem in _STEMS.items():
            kernel = approximated(kernel, region, stem, frozenset(FUNCTIONS) - frozenset(left))
        return without_unused_hosts(kernel)


def approximated(kernel: Kernel, region: str, stem: str, functions: frozenset[str] = frozenset(FUNCTIONS)) -> Kernel:
    """The kernel with these functions approximated in one region."""
    rewriter = _Rewriter(kernel, stem, functions)
    body = tuple(rewriter.statement(s) for s in kernel.region(region).body)
    if body == kernel.region(region).body:
        return kernel
    return with_region(rewriter.params.kernel, region, body)


class _Rewriter:
    def __init__(self, kernel: Kernel, stem: str, functions: frozenset[str]) -> None:
        self.params = HostParams(kernel, stem)
        self.functions = functions

    def statement(self, statement: Stmt) -> Stmt:
        return replace(statement, value=self.expr(statement.value)) if isinstance(statement, Assign) else statement

    def expr(self, expr: Expr) -> Expr:
        def change(node: Node) -> Node:
            return self.expr(node) if isinstance(node, Expr) else node

        match expr:
            case Call("exp", (power,)) if "exp" in self.functions:
                algebra = Algebra(self.params.kernel)
                terms = scaled(algebra.terms(self.expr(power)), LOG2E)
                return Call("exp2", (self.params.lower(rebuilt(terms)),), span=expr.span)
            case Call("log", (argument,)) if "log" in self.functions:
                return Binary("*", Call("log2", (self.expr(argument),)), Name("LN2"), span=expr.span)
            case Call("log1p", (Call("exp", (Unary("-", size),)) as unit,)) if "log" in self.functions and self.is_size(
                size
            ):
                return Call("log1p_unit", (self.expr(unit),), span=expr.span)
            case Call("tanh", (argument,)) if "tanh" in self.functions:
                return Call("tanh_approx", (self.expr(argument),), span=expr.span)
            case Binary("/", over, under) if "divide" in self.functions:
                inverse = Call("rcp", (self.expr(under),))
                return inverse if over == FloatLit(1.0) else Binary("*", self.expr(over), inverse, span=expr.span)
            case _:
                return map_children(expr, change)

    def is_size(self, expr: Expr) -> bool:
        """Is it surely no less than 0."""
        return is_nonnegative(with_hosts(expr, self.params.kernel))
