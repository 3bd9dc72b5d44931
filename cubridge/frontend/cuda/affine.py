"""Sums of integer terms: the normal form in which lane maps and the accessors `i` and `j` meet."""

from __future__ import annotations

from typing import Final

from cubridge.ir.nodes import Attr, Binary, Expr, IntLit, Name, Unary

Terms = dict[Expr, int]
"""Term -> coefficient, in the order of the text; the constant under `ONE`."""

ONE: Final = IntLit(1)
Q_START: Final = Attr(Name("tile"), "q_start")
KV_START: Final = Name("kv_start")
_ANCHORS: Final = (Q_START, KV_START)


def terms(expr: Expr) -> Terms:
    """The terms of a sum of integers; what is no sum is one term."""
    found: Terms = {}
    _collect(expr, 1, found)
    return found


def _collect(expr: Expr, factor: int, found: Terms) -> None:
    match expr:
        case IntLit(value):
            found[ONE] = found.get(ONE, 0) + factor * value
        case Binary("+", left, right):
            _collect(left, factor, found)
            _collect(right, factor, found)
        case Binary("-", left, right):
            _collect(left, factor, found)
            _collect(right, -factor, found)
        case Unary("-", operand):
            _collect(operand, -factor, found)
        case Binary("*", IntLit(value), other) | Binary("*", other, IntLit(value)):
            _collect(other, factor * value, found)
        case _:
            found[expr] = found.get(expr, 0) + factor


def has_anchor(expr: Expr) -> bool:
    """Is `tile.q_start` or `kv_start` a term of this sum, waiting to meet its opposite?"""
    return any(a in _ANCHORS for a in terms(expr))


def plus_one(expr: Expr, like: Expr) -> Expr:
    """`expr + 1`; of `n - 1` it is `n`."""
    found = terms(expr)
    if found.get(ONE) == -1:
        return rebuild(found | {ONE: 0}, like)
    return Binary("+", expr, IntLit(1, span=like.span), span=like.span)


def cancel_anchors(expr: Expr) -> Expr:
    """The sum with `tile.q_start` and `kv_start` taken against their opposites, so that `tile.q_start + (i - tile.q_start)` is `i`;
    the expression itself where there is nothing to take."""
    found = terms(expr)
    mentioned = [a for a in _ANCHORS if a in found]
    if not mentioned or any(found[a] != 0 for a in mentioned):
        return expr
    return rebuild(found, expr)


def rebuild(found: Terms, like: Expr) -> Expr:
    """A sum as an expression with the place of `like`: positive terms before negative ones, the constant last."""
    parts = [(t, c) for t, c in found.items() if c and t != ONE]
    constant = found.get(ONE, 0)
    ordered = [p for p in parts if p[1] > 0][:1] or [(ONE, constant)] if constant or parts else [(ONE, 0)]
    if ordered[0][0] == ONE:
        constant = 0
    result = _scaled(ordered[0][0], ordered[0][1], like)
    for term, coefficient in (p for p in parts if p != ordered[0]):
        op = "+" if coefficient > 0 else "-"
        result = Binary(op, result, _scaled(term, abs(coefficient), like), span=like.span)
    if constant:
        result = Binary("+" if constant > 0 else "-", result, IntLit(abs(constant), span=like.span), span=like.span)
    return result


def _scaled(term: Expr, coefficient: int, like: Expr) -> Expr:
    if term == ONE:
        return IntLit(coefficient, span=like.span)
    if coefficient == 1:
        return term
    return Binary("*", term, IntLit(coefficient, span=like.span), span=like.span)
