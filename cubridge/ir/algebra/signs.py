"""Proofs that an integer is never negative, wherever it has a value. "No" means "not proved".

A sum is judged by the intervals of its terms. Where these do not show it, `minimum`, `maximum`, `abs` and `where` are opened by
cases, and a quotient or remainder gives way to what bounds it: n * (v // n) lies in (v - n, v], and v // n is at most v / n."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.interval import EVERYTHING, INTEGERS, Interval, bounds, image_of
from cubridge.ir.algebra.normal import poly
from cubridge.ir.algebra.poly import Monomial, Poly, removed
from cubridge.ir.nodes import Attr, Binary, Call, Expr, Name

_DEPTH: Final = 48
"""Levels of an expression, and `_OPENED` for each case or bound, on the way down to one answer."""
_OPENED: Final = 4
_STEPS: Final = 2000
"""Of one proof, counted in terms that are looked at; what takes longer is not proved."""
_MAX_TERMS: Final = 300
"""Of a sum that takes in definitions."""


def nonnegative(value: Poly, facts: Facts) -> bool:
    """Is `value >= 0` always."""
    return _Proof(facts).holds(value, _DEPTH)


def positive(value: Poly, facts: Facts) -> bool:
    return nonnegative(value - 1, facts)


def at_most(left: Poly, right: Poly, facts: Facts) -> bool:
    """Is `left <= right` always."""
    return nonnegative(right - left, facts)


def is_natural(expr: Expr, facts: Facts) -> bool:
    """Is an integer, as it is written, never negative."""
    return _Proof(facts).interval(expr, _DEPTH).low >= 0


@dataclass(slots=True)
class _Proof:
    """One search. `steps`: those that were taken. `known`: intervals that were found on the way."""

    facts: Facts
    steps: int = 0
    known: dict[Expr, Interval] = field(default_factory=dict[Expr, Interval])

    def holds(self, value: Poly, depth: int) -> bool:
        """Is `value >= 0`."""
        value = self._defined(value)
        number = value.as_int()
        if number is not None:
            return number >= 0
        self.steps += len(value.terms)
        if depth <= 0 or self.steps > _STEPS:
            return False
        if bounds(value, lambda atom: self.interval(atom, depth)).low >= 0:
            return True
        every, cases = next(_splits(value), (False, ()))
        if every:
            return all(self.holds(c, depth - _OPENED) for c in cases)
        return any(self.holds(v, depth - _OPENED) for v in chain(cases, self._weaker(value, depth)))

    def _defined(self, value: Poly) -> Poly:
        """The sum with definitions in place of what they define, as far as that stays short."""
        while (opened := next(self._with_definition(value), None)) is not None and self.steps <= _STEPS:
            self.steps += len(opened.terms)
            value = opened
        return value

    def _with_definition(self, value: Poly) -> Iterator[Poly]:
        for atom in value.atoms():
            made = self.facts.definition(atom)
            if made is not None:
                new = poly(made)
                if len(new.terms) ** max(m.count(atom) for m, _ in value.terms) * len(value.terms) <= _MAX_TERMS:
                    yield value.replaced(atom, new)

    # ---- one expression ----------------------------------------------------------------------------------------------

    def interval(self, expr: Expr, depth: int) -> Interval:
        """An interval of an expression; from 0 on, at least, where it is proved."""
        found = self.known.get(expr)
        if found is None:
            self.known[expr] = EVERYTHING  # no proof rests on itself
            found = self.known[expr] = self._interval(expr, depth - 1)
        return found

    def _interval(self, expr: Expr, depth: int) -> Interval:
        self.steps += 1
        if depth <= 0 or self.steps > _STEPS:
            return EVERYTHING
        if isinstance(expr, Name | Attr | Call):
            least, definition = self.facts.least(expr), self.facts.definition(expr)
            if least is not None or definition is not None:
                found = EVERYTHING if definition is None else self.interval(definition, depth)
                return found if least is None else found.above(least)
        found = image_of(expr, lambda x: self.interval(x, depth), INTEGERS)
        return found.above(0) if found.low < 0 and self.holds(poly(expr), depth - _OPENED) else found

    def _is_natural(self, expr: Expr, depth: int) -> bool:
        return self.interval(expr, depth).low >= 0

    # ---- bounds of a sum ---------------------------------------------------------------------------------------------

    def _weaker(self, value: Poly, depth: int) -> Iterator[Poly]:
        """Sums that are at least 0 only if `value` is: without a common factor, or with a bound in place of an atom."""
        common = self._common(value, depth)
        if common:
            yield value.divided(Poly(((common, 1),)))[0]
        for monomial, coefficient in value.terms:
            for atom in dict.fromkeys(monomial):
                others = removed(monomial, (atom,)) or ()
                if all(self._is_natural(x, depth) for x in others):
                    factor = Poly(((others, coefficient),))
                    yield from self._replaced(value.without(monomial), factor, atom, depth)

    def _common(self, value: Poly, depth: int) -> Monomial:
        """The factors of all terms that are never negative."""
        (first, _), *rest = value.terms
        common: Monomial = ()
        for atom in first:
            if all(removed(m, (*common, atom)) is not None for m, _ in rest) and self._is_natural(atom, depth):
                common = (*common, atom)
        return common

    def _replaced(self, rest: Poly, factor: Poly, atom: Expr, depth: int) -> Iterator[Poly]:
        """Sums below `rest + factor * atom`, where `factor` has one sign."""
        ((_, coefficient),) = factor.terms
        match atom:
            case Binary("//", left, right) if self._is_natural(right, depth):
                value, by = self._defined(poly(left)), self._defined(poly(right))
                multiple, remainder = factor.divided(by)
                if not remainder.terms:  # multiple * by * (value // by)
                    yield rest + multiple * (value - by + 1 if coefficient > 0 else value)
                elif coefficient < 0:
                    yield rest * by + factor * value
                    if self._is_natural(left, depth):
                        yield rest + factor * value
            case Binary("%", left, right) if coefficient < 0 and self._is_natural(right, depth):
                yield rest + factor * (poly(right) - 1)
                if self._is_natural(left, depth):
                    yield rest + factor * poly(left)
            case _ if coefficient < 0 and (most := self.facts.most(atom)) is not None:
                yield rest + factor * poly(most)
            case _:
                pass


def opened(value: Poly, monomial: Monomial, coefficient: int) -> tuple[bool, tuple[Poly, Poly]] | None:
    """(every, cases) of a sum with the term `coefficient * minimum(a, b)`, or `maximum`, or `abs`: the sum is at least 0 exactly
    where every case is, or where one is. Other terms with the same atom stay as they are."""
    match monomial:
        case (Call("minimum" | "maximum" as fn, (left, right)),):
            every, parts = (fn == "minimum") == (coefficient > 0), (poly(left), poly(right))
        case (Call("abs", (operand,)),):
            every, parts = coefficient < 0, (poly(operand), -poly(operand))
        case _:
            return None
    rest = value.without(monomial)
    return every, (rest + parts[0] * coefficient, rest + parts[1] * coefficient)


def _splits(value: Poly) -> Iterator[tuple[bool, tuple[Poly, Poly]]]:
    """Ways to decide by cases: (must all hold, the cases)."""
    for monomial, coefficient in value.terms:
        match monomial:
            case (Call("where", (_, left, right)) as atom,):
                yield True, (value.replaced(atom, poly(left)), value.replaced(atom, poly(right)))
            case _ if found := opened(value, monomial, coefficient):
                yield found
            case _:
                pass
