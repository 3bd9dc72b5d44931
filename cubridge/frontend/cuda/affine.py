"""Sums of integers as they are written: where lane maps and the accessors `i` and `j` meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cubridge.ir.algebra.normal import to_expr
from cubridge.ir.algebra.poly import Monomial, Poly
from cubridge.ir.nodes import Attr, Binary, Expr, IntLit, Name, Node, Unary
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.walk import rewrite

ANCHORS: Final = frozenset(
    {Attr(Name("tile"), "q_start"), Name("kv_start"), Attr(Name("tile"), "kv_start"), Name("q_start")}
)
"""Where fragments begin: their first row is the work tile's, their first column what a call says."""


def _summands(expr: Expr, factor: int = 1) -> Iterator[tuple[Monomial, int]]:
    """The terms of a sum, with their factors; what is no sum is one term, as it is written."""
    match expr:
        case IntLit(value):
            yield (), factor * value
        case Binary("+" | "-" as op, left, right):
            yield from _summands(left, factor)
            yield from _summands(right, factor if op == "+" else -factor)
        case Unary("-", operand):
            yield from _summands(operand, -factor)
        case Binary("*", IntLit(value), other) | Binary("*", other, IntLit(value)):
            yield from _summands(other, factor * value)
        case _:
            yield (expr,), factor


def _anchors(expr: Expr) -> list[Monomial]:
    return [m for m, _ in _summands(expr) if len(m) == 1 and m[0] in ANCHORS]


def has_anchor(expr: Expr) -> bool:
    """Is one of the anchors, as `tile.q_start` or `kv_start`, a term of this sum, waiting to meet its opposite?"""
    return bool(_anchors(expr))


def plus_one(expr: Expr, like: Expr) -> Expr:
    """`expr + 1`; of `n - 1` it is `n`."""
    found = Poly.of(_summands(expr))
    if found.coefficient(()) == -1:
        return _placed(found + 1, like.span)
    return Binary("+", expr, IntLit(1, span=like.span), span=like.span)


def cancel_anchors(expr: Expr) -> Expr:
    """The sum with its anchors taken against their opposites, so that `tile.q_start + (i - tile.q_start)` is `i`;
    the expression itself where there is nothing to take."""
    found, anchors = Poly.of(_summands(expr)), _anchors(expr)
    return _placed(found, expr.span) if anchors and not any(map(found.coefficient, anchors)) else expr


def _placed(value: Poly, place: Span) -> Expr:
    """A sum as an expression: its terms keep their places, the operators are at `place`."""

    def change(node: Node) -> Node:
        return replace(node, span=place) if node.span is NOWHERE else node

    return rewrite(to_expr(value), change)
