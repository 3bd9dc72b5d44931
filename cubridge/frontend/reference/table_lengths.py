"""How long a table must be for subscripts that positions make: conditions on sizes, known before a launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import ends, nonneg
from cubridge.frontend.reference.algebra.polynomials import coefficient, terms_of
from cubridge.frontend.reference.algebra.predicates import at_least_zero
from cubridge.frontend.reference.algebra.terms import Apply, Const, Index, Size, Term, const, walk
from cubridge.ir.nodes import SIZES

Subscript = tuple[Term, Term]
"""An index and the extent of its axis."""


def length_conditions(subscript: Subscript) -> list[Term] | None:
    """What of the sizes says exactly that the index is in range; None where values or other extents decide."""
    index, extent = subscript
    if index.reads or any(isinstance(x, Size) and x.name not in _KNOWN for x in (*walk(index), *walk(extent))):
        return None
    last = integers.sub(integers.sub(extent, const(1)), index)
    unknown = [p for p in (index, last) if not nonneg(p)]
    bounds = [_least(part) for p in unknown for part in _without_distance(p)]
    return None if any(b is None for b in bounds) else [at_least_zero(b) for b in bounds if b is not None]


_KNOWN: Final = frozenset((*SIZES, "G"))


def _without_distance(p: Term) -> Iterable[Term]:
    """Of what a distance |a| is taken from, the two that are both as large."""
    for atom in dict.fromkeys(a for monomial in terms_of(p) for a in monomial):
        split = coefficient(p, atom) if isinstance(atom, Apply) and atom.op == "iabs" else None
        if isinstance(atom, Apply) and split is not None and isinstance(split[0], Const) and split[0].value < 0:
            factor, rest = split
            part = integers.mul(factor, atom.args[0])
            return (integers.add(rest, part), integers.sub(rest, part))
    return (p,)


def _least(p: Term) -> Term | None:
    """The least value over all positions, which is taken: each position stands in one place, and nothing bends there."""
    positions = [x for monomial in terms_of(p) for atom in monomial for x in _positions(atom)]
    if None in positions or len(positions) != len(set(positions)):
        return None
    bounds = ends(p, low=True)
    return bounds[0] if len(bounds) == 1 else None


def _positions(atom: Term) -> Iterator[Term | None]:
    match atom:
        case Index():
            yield atom
        case Apply(op="//", args=(a, Const())):
            yield from (x for monomial in terms_of(a) for inner in monomial for x in _positions(inner))
        case _ if atom.free:
            yield None
        case _:
            return
