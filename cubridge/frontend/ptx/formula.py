"""Nodes of a slice as CuIR expressions. Comparisons of integers stay holes until samples show what they compare."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from cubridge.frontend.ptx.values import Node, Value
from cubridge.ir.algebra.normal import poly
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import NAMED_CONSTANTS, Attr, Binary, Call, Expr, FloatLit, Name, Unary
from cubridge.ir.printer import print_expr
from cubridge.ir.source import Span
from cubridge.ir.walk import rewrite

_BINARY: Final = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|"}
_ORDERS: Final = ("<", "<=", ">", ">=")
_CALLS: Final = {
    "max": "maximum", "min": "minimum", "exp2": "exp2", "log2": "log2", "sqrt": "sqrt", "tanh_approx": "tanh_approx", "abs": "abs",
    "where": "where",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hole:
    """A comparison of `difference` with 0, in a formula called by its number: `#0`."""

    op: str
    difference: Poly
    span: Span


@dataclass(frozen=True, slots=True)
class Formula:
    expr: Expr
    holes: tuple[Hole, ...] = ()


@dataclass(slots=True)
class Formulas:
    """`leaf`: what a node is called, None where it is no leaf."""

    leaf: Callable[[Node], Expr | None]
    holes: list[Hole] = field(default_factory=list[Hole])

    def of(self, node: Value) -> Formula:
        """Errors: CU854 for what has no formula."""
        self.holes = []
        expr = self.expr(node)
        return Formula(expr, tuple(self.holes))

    def expr(self, value: Value) -> Expr:
        if isinstance(value, Poly):
            number = value.as_int()
            if number == 0:
                return FloatLit(0.0)
            raise CuError(Diagnostic("CU854", "the softmax of a row reads an integer"))
        found = self.leaf(value)
        if found is not None:
            return found
        match value.op:
            case "number":
                return _number(value)
            case "param":
                return Attr(Name("p"), str(value.data), span=value.span)
            case "compare":
                return self._compared(value)
            case "reciprocal":
                return Binary("/", FloatLit(1.0), self.expr(value.args[0]), span=value.span)
            case "rsqrt":
                root = Call("sqrt", (self.expr(value.args[0]),), span=value.span)
                return Binary("/", FloatLit(1.0), root, span=value.span)
            case "neg":
                return Unary("-", self.expr(value.args[0]), span=value.span)
            case "not":
                return Unary("~", self.expr(value.args[0]), span=value.span)
            case op if op in _BINARY:
                left, right = map(self.expr, value.args)
                return Binary(_BINARY[op], left, right, span=value.span)
            case op if op in _CALLS:
                return Call(_CALLS[op], tuple(map(self.expr, value.args)), span=value.span)
            case _:
                return refuse(value)

    def _compared(self, node: Node) -> Expr:
        left, right = node.args
        if isinstance(left, Poly) and isinstance(right, Poly):
            return self._hole(Hole(str(node.data), left - right, node.span))
        return Binary(str(node.data), self.expr(left), self.expr(right), span=node.span)

    def _hole(self, hole: Hole) -> Expr:
        """A comparison with a minimum or maximum is two comparisons."""
        for monomial, factor in hole.difference.terms:
            match monomial:
                case (Call("minimum" | "maximum" as fn, (left, right)),) if factor in (1, -1) and hole.op in _ORDERS:
                    rest = hole.difference.without(monomial)
                    sides = [self._hole(Hole(hole.op, rest + poly(x) * factor, hole.span)) for x in (left, right)]
                    is_least = (fn == "minimum") == (factor == 1)
                    any_is_enough = is_least == (hole.op in ("<", "<="))
                    return Binary("|" if any_is_enough else "&", *sides, span=hole.span)
                case _:
                    pass
        self.holes.append(hole)
        return Name(f"#{len(self.holes) - 1}", span=hole.span)


def refuse(node: Node) -> NoReturn:
    what = {
        "sum": "a sum of products that is neither scores nor an output",
        "element": f"an element of `{getattr(node.data, 'tensor', '')}` outside of products",
        "state": "what the loop carries, and no row of the softmax explains",
        "opaque": f"`{node.data}`, which has no formula here",
        "left out": "what a branch left out in the runs that are followed",
        "cast": f"a value rounded to {node.data}",
    }.get(node.op, f"`{node.op}`")
    raise CuError(Diagnostic("CU854", f"the softmax of a row reads {what}", node.span))


def _number(node: Node) -> Expr:
    value = node.data
    assert isinstance(value, float)
    for name, constant in NAMED_CONSTANTS.items():
        if name not in ("nan", "inf") and _single(constant) == value:
            return Name(name, span=node.span)
    if value != value:
        return Name("nan", span=node.span)
    if value in (float("inf"), float("-inf")):
        inf = Name("inf", span=node.span)
        return inf if value > 0 else Unary("-", inf, span=node.span)
    return FloatLit(value, span=node.span)


def _single(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def leaves(node: Value, ops: Sequence[str]) -> list[Value]:
    """The operands of a tree of these operations, in order."""
    found: list[Value] = []
    waiting: list[Value] = [node]
    while waiting:
        at = waiting.pop()
        if isinstance(at, Node) and at.op in ops:
            waiting += reversed(at.args)
        else:
            found.append(at)
    return found


def filled(formula: Formula, holes: Mapping[str, Expr]) -> Expr:
    return rewrite(formula.expr, lambda n: holes.get(n.id, n) if isinstance(n, Name) else n)  # pyright: ignore[reportReturnType]


def ordered(expr: Expr) -> Expr:
    """With the operands of what commutes in one order: compilers do not keep to one."""
    return rewrite(expr, _ordered)  # pyright: ignore[reportArgumentType, reportReturnType]


def _ordered(node: object) -> object:
    match node:
        case Binary("+" | "*" | "&" | "|" | "==" | "!=" as op, left, right):
            return Binary(op, *sorted((left, right), key=print_expr))
        case Call("maximum" | "minimum" as fn, args):
            return Call(fn, tuple(sorted(args, key=print_expr)))
        case _:
            return node
