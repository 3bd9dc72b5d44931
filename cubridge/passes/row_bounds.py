"""row-bounds: comparisons of j with values of the row become bounds that are computed once per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from cubridge.ir.algebra.exprs import both, either, operands
from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.nodes import Assign, Binary, Call, Expr, IntLit, Kernel, Name
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.clauses import KEY, Clause, clauses
from cubridge.passes.mask import IN_RANGE
from cubridge.passes.pieces import END, START, Piece, always, joined_pieces, piece_of, smaller
from cubridge.passes.regions import assign, mask_predicate, masked, with_region
from cubridge.passes.rows import RowRange

_MAX_INTERVALS: Final = 3
"""Beyond this many intervals of keys a row, the predicate as written is as cheap."""


@dataclass(frozen=True, slots=True)
class RowBounds(Pass):
    """Compare j with a first and a last key per row.
    rewrite:   s = where((j < Lk) & (j <= i), s, -inf)   -->   last = minimum(i, Lk - 1)
                                                              s = where(j <= last, s, -inf)
    requires:  mask is one `where` over its predicate; conditions that are no bounds of j stay as they are."""

    name: ClassVar[str] = "row-bounds"
    example: ClassVar[str] = 'rewrite-mask{keep="j <= i"},row-bounds'

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        predicate = mask_predicate(kernel)
        rows = RowRange.of(kernel)
        if predicate is None:
            return kernel
        solved, kept = _split(predicate, rows.facts)
        pieces = joined_pieces([piece_of(c.lowers, _ends(c), both(*c.rows), rows.facts) for c in solved], rows.facts)
        if not 1 <= len(pieces) <= _MAX_INTERVALS:
            return kernel
        body, seen = _bounded(tuple(always(p) for p in pieces), rows)
        return with_region(kernel, "mask", (*body, masked(both(seen, *kept))))


def _split(predicate: Expr, facts: Facts) -> tuple[tuple[Clause, ...], list[Expr]]:
    """The conjuncts that are bounds of j, as clauses, and those that are not."""
    parts = [p for p in operands("&", predicate) if p != IN_RANGE]
    bounds = [p for p in parts if not any(c.rest for c in clauses(p, facts))]
    return clauses(both(*bounds), facts), [p for p in parts if p not in bounds]


def _ends(clause: Clause) -> tuple[Poly, ...]:
    return tuple(u + 1 for u in clause.uppers)


def _bounded(pieces: tuple[Piece, ...], rows: RowRange) -> tuple[list[Assign], Expr]:
    """The locals that hold the bounds, and the predicate over them."""
    body: list[Assign] = []
    seen: list[Expr] = []
    for n, piece in enumerate(pieces):
        prefix = f"{'abc'[n]}_" if len(pieces) > 1 else ""
        parts: list[Expr] = []
        if piece.low != START:
            parts.append(Binary(">=", KEY, _local(body, f"{prefix}first", _without_start(piece.low))))
        if piece.high == END:
            parts.append(IN_RANGE)
        else:
            last = shifted(smaller(piece.high, END, rows.facts), -1)
            parts.append(Binary("<=", KEY, _local(body, f"{prefix}last", last)))
        seen.append(both(*parts))
    return body, either(*seen)


def _local(body: list[Assign], name: str, value: Expr) -> Expr:
    body.append(assign(name, value))
    return Name(name)


def _without_start(low: Poly) -> Expr:
    """A first key without its bound by 0, which every key meets."""
    match to_expr(low):
        case Call("maximum", (IntLit(0), first)):
            return first
        case first:
            return first


def shifted(value: Poly, by: int) -> Expr:
    """`value + by`, with the number inside of minimum, maximum and where."""
    match value.terms:
        case (((Call("minimum" | "maximum" as fn, (left, right)),), 1),):
            return Call(fn, (shifted(poly(left), by), shifted(poly(right), by)))
        case (((Call("where", (condition, then, otherwise)),), 1),):
            return Call("where", (condition, shifted(poly(then), by), shifted(poly(otherwise), by)))
        case _:
            return to_expr(value + by)
