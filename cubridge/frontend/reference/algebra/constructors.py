"""Constructors of normal forms by the name of their operation.

Rules call each other in a circle: a choice moves into sums, a sum into choices, and substitution builds any term again. A rule that
needs a constructor of a file above its own asks here; `table.py`, above them all, enters them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.terms import Apply, Index, Load, Poly, Reduce, Term, arena, const, index, load

CONSTRUCTORS: Final[dict[str, Callable[..., Term]]] = {}
REDUCE: Final = "reduce"
"""The name of the constructor of reductions, which takes their kind first."""


def construct(op: str, *args: object) -> Term:
    return CONSTRUCTORS[op](*args)


def rebuild(term: Term, children: tuple[Term, ...]) -> Term:
    """`term` with other children, in normal form."""
    match term:
        case Poly():
            rest = iter(children)
            summands: list[Term] = []
            for monomial, c in term.monomials:
                product: Term = const(c)
                for _ in monomial:
                    product = integers.mul(product, next(rest))
                summands.append(product)
            return integers.add(*summands)
        case Apply():
            return construct(term.op, *children)
        case Load():
            return load(term.tensor, children, term.sort)
        case Index():
            return index(term.name, children[0])
        case Reduce():
            return construct(REDUCE, term.kind, *children)
        case _:
            return term


def rebuilt_in_place(term: Term, children: tuple[Term, ...]) -> Term:
    """`rebuild`; what it makes has the place of `term`."""
    current = arena()
    before = current.here
    current.here = current.places.get(term, before)
    try:
        return rebuild(term, children)
    finally:
        current.here = before
