"""Polynomials with integer coefficients over atoms: expressions that are neither sum nor product of others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from cubridge.ir.nodes import Expr

Monomial = tuple[Expr, ...]
"""A product of atoms; `()` is 1."""


@dataclass(frozen=True, slots=True)
class Poly:
    """A sum of `coefficient * monomial`, in the order in which the monomials first appeared; no coefficient is 0."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(terms: Iterable[tuple[Monomial, int]]) -> Poly:
        total: dict[Monomial, int] = {}
        for monomial, coefficient in terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return Poly(tuple((m, c) for m, c in total.items() if c))

    @staticmethod
    def constant(value: int) -> Poly:
        return Poly((((), value),) if value else ())

    @staticmethod
    def atom(expr: Expr) -> Poly:
        return Poly((((expr,), 1),))

    def __add__(self, other: Poly | int) -> Poly:
        added = _lifted(other)
        if not self.terms or not added.terms:
            return self if self.terms else added
        return Poly.of((*self.terms, *added.terms))

    def __sub__(self, other: Poly | int) -> Poly:
        return self + other * -1

    def __neg__(self) -> Poly:
        return self * -1

    def __mul__(self, other: Poly | int) -> Poly:
        if isinstance(other, int):
            return Poly(tuple((m, c * other) for m, c in self.terms) if other else ())
        return Poly.of((_joined(m, n), c * d) for m, c in self.terms for n, d in other.terms)

    def equals(self, other: Poly) -> bool:
        """The same sum, in whichever order."""
        return dict(self.terms) == dict(other.terms)

    def as_int(self) -> int | None:
        """The value of a constant polynomial."""
        match self.terms:
            case ():
                return 0
            case (((), value),):
                return value
            case _:
                return None

    def coefficient(self, monomial: Monomial) -> int:
        return next((c for m, c in self.terms if m == monomial), 0)

    def without(self, monomial: Monomial) -> Poly:
        return Poly(tuple((m, c) for m, c in self.terms if m != monomial))

    def atoms(self) -> tuple[Expr, ...]:
        return tuple(dict.fromkeys(a for m, _ in self.terms for a in m))

    def replaced(self, atom: Expr, value: Poly) -> Poly:
        """The polynomial with `value` for `atom`, in the place of the terms that had it."""
        result = Poly(())
        for monomial, coefficient in self.terms:
            count = monomial.count(atom)
            term = Poly(((tuple(a for a in monomial if a != atom), coefficient),))
            for _ in range(count):
                term = value * term
            result = result + term
        return result

    def divided(self, by: Poly) -> tuple[Poly, Poly]:
        """(q, r) with `self = by * q + r`, where q has the quotients of the terms that a polynomial of one term divides."""
        quotients = [divided_term(m, c, by) for m, c in self.terms]
        rest = tuple(t for t, q in zip(self.terms, quotients, strict=True) if q is None)
        return Poly.of(q for q in quotients if q is not None), Poly(rest)


def divided_term(monomial: Monomial, coefficient: int, by: Poly) -> tuple[Monomial, int] | None:
    """The term divided by a polynomial of one term, where that leaves a whole term."""
    if len(by.terms) != 1:
        return None
    ((factors, divisor),) = by.terms
    if divisor <= 0 or coefficient % divisor:
        return None
    rest = removed(monomial, factors)
    return None if rest is None else (rest, coefficient // divisor)


def removed(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """What is left of a product without these factors, None where it lacks one."""
    rest = list(monomial)
    for factor in factors:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def _lifted(value: Poly | int) -> Poly:
    return Poly.constant(value) if isinstance(value, int) else value


def _joined(left: Monomial, right: Monomial) -> Monomial:
    """The product of two, each in the order of its spelling."""
    return tuple(sorted((*left, *right), key=_spelled)) if left and right else left or right


@lru_cache(maxsize=4096)
def _spelled(atom: Expr) -> str:
    return repr(atom)
