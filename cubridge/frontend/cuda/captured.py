"""Flat indices of captured tensors back to one index per axis: `(b * E1 + j)` of a tensor with extents (E0, E1) is `[b, j]`."""

from __future__ import annotations

from collections import Counter

from cubridge.frontend.cuda.values import Scalar, refusal
from cubridge.ir.algebra.exprs import addends
from cubridge.ir.contract import CapturedAddress, TileListAddress, padded_extents
from cubridge.ir.nodes import Binary, Expr, IntLit
from cubridge.ir.source import Span
from cubridge.ir.types import DType


def captured_indices(tensor: CapturedAddress | TileListAddress, at: Scalar, place: Span) -> tuple[Expr, ...]:
    """Errors: CU423 if the index is not in row-major order, or is computed in 32 bits where there are several axes."""
    name, extents = _shape(tensor)
    if not extents:
        if at.expr != IntLit(0):
            raise refusal(f"`{name}` has one element", place)
        return (at.expr,)
    indices: list[Expr] = []
    rest = at.expr
    for extent in reversed(extents[1:]):
        outer, inner = _divide(rest, extent)
        if outer is None or inner is None:
            raise refusal(f"this index of `{name}` is not row-major: no multiple of its extent is in it", place)
        indices.append(inner)
        rest = outer
    if len(extents) > 1 and at.dtype is not DType.I64:
        raise refusal("an index over several axes is computed in 32 bits", place, help="cast the outer index to `i64`")
    return (rest, *reversed(indices))


def _shape(tensor: CapturedAddress | TileListAddress) -> tuple[str, tuple[Expr, ...]]:
    """What messages call it, and its extents in memory."""
    match tensor:
        case CapturedAddress(name, extents, pad):
            return name, padded_extents(extents, pad)
        case TileListAddress(kind):
            return "tiles", kind.extents


def _divide(index: Expr, extent: Expr) -> tuple[Expr | None, Expr | None]:
    """(q, r) with index = q * extent + r, by the terms of the sum: those with the factors of the extent make q."""
    wanted = _factors(extent)
    outer: Expr | None = None
    inner: Expr | None = None
    for sign, term in addends(index):
        factors = Counter(_factors(term))
        factors.subtract(Counter(wanted))
        if min(factors.values(), default=0) >= 0:
            quotient = _product([f for f in _factors(term) if _take(factors, f)])
            outer = _plus(outer, sign, quotient)
        else:
            inner = _plus(inner, sign, term)
    return outer, IntLit(0) if inner is None and outer is not None else inner


def _take(counts: Counter[Expr], factor: Expr) -> bool:
    taken = counts[factor] > 0
    counts[factor] -= taken
    return taken


def _factors(expr: Expr) -> list[Expr]:
    match expr:
        case Binary("*", left, right):
            return [*_factors(left), *_factors(right)]
        case _:
            return [expr]


def _product(factors: list[Expr]) -> Expr:
    result: Expr | None = None
    for factor in factors:
        result = factor if result is None else Binary("*", result, factor, span=factor.span)
    return result or IntLit(1)


def _plus(total: Expr | None, sign: int, term: Expr) -> Expr:
    if total is None:
        return term if sign > 0 else Binary("-", IntLit(0), term, span=term.span)
    return Binary("+" if sign > 0 else "-", total, term, span=term.span)
