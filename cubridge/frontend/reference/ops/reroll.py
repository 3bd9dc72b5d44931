"""Undoes a Python loop: a list of terms that differ in their position alone becomes one term of the position."""

from __future__ import annotations

from collections.abc import Sequence

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.polynomials import Terms, from_terms, terms_of
from cubridge.frontend.reference.algebra.rebuild import rebuild
from cubridge.frontend.reference.algebra.terms import Apply, Const, Index, Load, Poly, Reduce, Size, Sort, Term, const


def rerolled(terms: Sequence[Term], position: Term) -> Term | None:
    """The term f(position) with f(n) = terms[n], by anti-unification; None where they differ otherwise."""
    first = terms[0]
    if all(t is first for t in terms):
        return first
    if all(t.sort is Sort.INT for t in terms):
        return _integer(terms, position)
    if len({_kind(t) for t in terms}) > 1:
        return None
    if isinstance(first, (Const, Size, Index, Poly)):
        return None
    columns = zip(*(t.children() for t in terms), strict=True)
    children: list[Term] = []
    for column in columns:
        child = rerolled(column, position)
        if child is None:
            return None
        children.append(child)
    return rebuild(first, tuple(children))


def _kind(term: Term) -> tuple[object, ...]:
    match term:
        case Apply():
            return "apply", term.op, term.sort, len(term.args)
        case Load():
            return "load", term.tensor
        case Reduce():
            return "reduce", term.kind, term.index
        case _:
            return (type(term).__name__,)


def _integer(terms: Sequence[Term], position: Term) -> Term | None:
    """A polynomial whose coefficients all are start + step * (n // width) in the position n."""
    tables = [terms_of(t) for t in terms]
    monomials = dict.fromkeys(m for table in tables for m in table)
    result: Term = integers.ZERO
    for monomial in monomials:
        pattern = _progression([table.get(monomial, 0) for table in tables], position)
        if pattern is None:
            return None
        unit: Terms = {monomial: 1}
        result = integers.add(result, integers.mul(pattern, from_terms(unit)))
    return result


def _progression(values: list[int], position: Term) -> Term | None:
    start = values[0]
    for width in range(1, len(values) + 1):
        step = values[width] - start if width < len(values) else 0
        if all(v == start + step * (n // width) for n, v in enumerate(values)):
            return integers.add(const(start), integers.mul(const(step), integers.floordiv(position, const(width))))
    return None
