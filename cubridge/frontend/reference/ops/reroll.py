"""Undoes a Python loop: a list of terms that differ in their position alone becomes one term of the position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from cubridge.frontend.reference.algebra import integers, reals
from cubridge.frontend.reference.algebra.constructors import rebuild
from cubridge.frontend.reference.algebra.numbers import number
from cubridge.frontend.reference.algebra.polynomials import Terms, from_terms, terms_of
from cubridge.frontend.reference.algebra.terms import Apply, Const, Index, Load, Poly, Reduce, Size, Sort, Term, const

_UNORDERED: Final = frozenset(("add", "mul", "and", "or", "max", "min", "imax", "imin"))


def rerolled(terms: Sequence[Term], position: Term) -> Term | None:
    """The term f(position) with f(n) = terms[n], by anti-unification; None where they differ otherwise."""
    first = terms[0]
    if all(t is first for t in terms):
        return first
    if all(t.sort is Sort.INT for t in terms):
        return _integer(terms, position)
    if all(isinstance(t, Const) and t.sort is Sort.REAL for t in terms):
        return _real(terms, position)
    if len({_kind(t) for t in terms}) > 1:
        return None
    if isinstance(first, (Const, Size, Index, Poly)):
        return None
    children: list[Term] = []
    for column in zip(*map(_aligned, terms), strict=True):
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


def _aligned(term: Term) -> tuple[Term, ...]:
    """Children in an order that does not depend on the integers in them."""
    if isinstance(term, Apply) and term.op in _UNORDERED:
        return tuple(sorted(term.args, key=_skeleton))
    return term.children()


def _skeleton(term: Term) -> str:
    """The structure of a term without its integers."""
    if term.sort is Sort.INT:
        return "int"
    match term:
        case Const():
            return f"number {term.value}"
        case Apply():
            inside = map(_skeleton, term.args)
            return f"{term.op}({', '.join(sorted(inside) if term.op in _UNORDERED else inside)})"
        case Load():
            return f"load {term.tensor}"
        case Reduce():
            return f"{term.kind} {term.index.name} {_skeleton(term.body)}"
        case _:
            return repr(term)


def _real(terms: Sequence[Term], position: Term) -> Term | None:
    """start + step * n, as far as floats can tell."""
    values = [float(t.value) for t in terms if isinstance(t, Const)]
    start, step = values[0], (values[-1] - values[0]) / (len(values) - 1)
    if not all(math.isclose(v, start + step * n, rel_tol=1e-13) for n, v in enumerate(values)):
        return None
    return reals.add(number(start), reals.mul(number(step), position))


def _integer(terms: Sequence[Term], position: Term) -> Term | None:
    """A polynomial whose coefficients all are start + step * (n // width) in the position n."""
    tables = [terms_of(t) for t in terms]
    result: Term = integers.ZERO
    for monomial in dict.fromkeys(m for table in tables for m in table):
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
