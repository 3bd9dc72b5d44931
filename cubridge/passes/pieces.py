"""The keys that a query tile visits, or sees whole, as few intervals: each clause of the mask bounded over the tile's rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from cubridge.ir.algebra.exprs import FALSE, TRUE, both, either, where
from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import extremum, poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.algebra.signs import at_most
from cubridge.ir.nodes import Expr, Name
from cubridge.passes.clauses import Clause, Clauses
from cubridge.passes.rows import RowRange

START: Final = Poly(())
END: Final = Poly.atom(Name("Lk"))
MAX_PIECES: Final = 2
"""Intervals that a key sequence can walk."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Keys `low` <= j < `high`, in tiles where `when` holds; empty elsewhere."""

    low: Poly
    high: Poly
    when: Expr = TRUE


def visited(clauses: Clauses, rows: RowRange) -> tuple[Piece, ...]:
    """At most two pieces that hold every key that some row of the tile sees."""
    pieces = joined_pieces([p for c in clauses if (p := _visited(c, rows))], rows.facts)
    while len(pieces) > MAX_PIECES:
        pieces = _hull_of_last(pieces, rows.facts)
    return tuple(pieces)


def full(clauses: Clauses, rows: RowRange) -> tuple[Piece, ...]:
    """At most two pieces of keys that every row of the tile sees."""
    pieces = joined_pieces([p for c in clauses if (p := _full(c, rows))], rows.facts)
    pieces.sort(key=lambda p: p.when != TRUE)
    return tuple(pieces[:MAX_PIECES])


def _visited(clause: Clause, rows: RowRange) -> Piece | None:
    when = both(*(rows.somewhere(c) for c in clause.rows))
    if when == FALSE:
        return None
    lows = [b for x in clause.lowers if (b := rows.bound(x, high=False)) is not None]
    highs = [b + 1 for x in clause.uppers if (b := rows.bound(x, high=True)) is not None]
    return piece_of(lows, highs, when, rows.facts)


def _full(clause: Clause, rows: RowRange) -> Piece | None:
    when = both(*(rows.everywhere(c) for c in clause.rows))
    lows = [b for x in clause.lowers if (b := rows.bound(x, high=True)) is not None]
    highs = [b + 1 for x in clause.uppers if (b := rows.bound(x, high=False)) is not None]
    all_bounded = len(lows) == len(clause.lowers) and len(highs) == len(clause.uppers)
    if when == FALSE or clause.rest or not all_bounded:
        return None
    return piece_of(lows, highs, when, rows.facts)


def piece_of(lows: Iterable[Poly], highs: Iterable[Poly], when: Expr, facts: Facts) -> Piece:
    low, high = START, END
    for bound in lows:
        low = larger(low, bound, facts)
    for n, bound in enumerate(highs):
        high = bound if n == 0 else smaller(high, bound, facts)
    return Piece(low, high, when)


def larger(a: Poly, b: Poly, facts: Facts) -> Poly:
    if at_most(a, b, facts):
        return b
    return a if at_most(b, a, facts) else extremum("maximum", a, b)


def smaller(a: Poly, b: Poly, facts: Facts) -> Poly:
    if at_most(a, b, facts):
        return a
    return b if at_most(b, a, facts) else extremum("minimum", a, b)


def _further(a: Poly, b: Poly, facts: Facts) -> Poly:
    """The larger of two ends of pieces; all pieces end with the keys."""
    return END if END in (a, b) else larger(a, b, facts)


def joined_pieces(pieces: list[Piece], facts: Facts) -> list[Piece]:
    """Pieces of the same keys, joined where two surely make one interval."""
    for n, a in enumerate(pieces):
        for m in range(n + 1, len(pieces)):
            joined = _joined(a, pieces[m], facts) or _joined(pieces[m], a, facts)
            if joined is not None:
                return joined_pieces([*pieces[:n], joined, *pieces[n + 1 : m], *pieces[m + 1 :]], facts)
    return pieces


def _joined(a: Piece, b: Piece, facts: Facts) -> Piece | None:
    """The one piece that equals both together."""
    if a.when != TRUE and a.when != b.when:
        return _both_conditional(a, b, facts)
    if at_most(a.low, b.low, facts) and (a.high == END or at_most(b.high, a.high, facts)):
        return a
    if a.low == b.low:
        high = _further(a.high, b.high, facts)
        return replace(a, high=_chosen(b.when, a.when, high, a.high))
    if a.high == b.high:
        low = smaller(a.low, b.low, facts)
        return replace(a, low=_chosen(b.when, a.when, low, a.low))
    if a.when == b.when and at_most(a.low, b.low, facts) and at_most(b.low, a.high, facts):
        return replace(a, high=_further(a.high, b.high, facts))
    return None


def _both_conditional(a: Piece, b: Piece, facts: Facts) -> Piece | None:
    if a.low == b.low and a.high == b.high:
        return replace(a, when=either(a.when, b.when))
    if b.when != TRUE and a.low == b.low:
        return Piece(a.low, _further(always(a).high, always(b).high, facts))
    return None


def _chosen(when: Expr, given: Expr, then: Poly, otherwise: Poly) -> Poly:
    return then if when == given else poly(where(when, to_expr(then), to_expr(otherwise)))


def always(piece: Piece) -> Piece:
    """The piece with its condition in its end: `high` is `low` where the condition fails."""
    if piece.when == TRUE:
        return piece
    return Piece(piece.low, poly(where(piece.when, to_expr(piece.high), to_expr(piece.low))))


def _hull_of_last(pieces: list[Piece], facts: Facts) -> list[Piece]:
    """One piece fewer: an interval around two of them. A piece from the first key on stays alone as long as it can."""
    ordered = sorted(pieces, key=lambda p: p.low != START)
    *rest, a, b = (always(p) for p in ordered)
    return [*rest, Piece(smaller(a.low, b.low, facts), _further(a.high, b.high, facts))]
