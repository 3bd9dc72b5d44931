"""A mask predicate as a union of key intervals: each clause bounds j from both sides, for rows that meet its conditions.

Comparisons of integers are solved for j through sums, positive factors, `//`, abs, minimum, maximum and where. What has no
such solution (remainders of j, loads at j) stays in the clause as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Final

from cubridge.ir.algebra.exprs import MIRRORED, negated
from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import compared, floor_div, normal_predicate, poly
from cubridge.ir.algebra.poly import Monomial, Poly
from cubridge.ir.algebra.signs import at_most, opened, positive
from cubridge.ir.nodes import Binary, BoolLit, Call, Expr, Name, Unary
from cubridge.ir.walk import free_names

KEY: Final = Name("j")
MAX_CLAUSES: Final = 24
"""Beyond this many, a part of the predicate is kept whole as one condition on j."""


@dataclass(frozen=True, slots=True)
class Clause:
    """Keys j with every `lowers` <= j <= every `uppers`, where all of `rows` (j-free) and `rest` (not solved) hold."""

    lowers: tuple[Poly, ...] = ()
    uppers: tuple[Poly, ...] = ()
    rows: tuple[Expr, ...] = ()
    rest: tuple[Expr, ...] = ()

    def and_(self, other: Clause) -> Clause:
        return Clause(
            tuple(dict.fromkeys((*self.lowers, *other.lowers))),
            tuple(dict.fromkeys((*self.uppers, *other.uppers))),
            tuple(dict.fromkeys((*self.rows, *other.rows))),
            tuple(dict.fromkeys((*self.rest, *other.rest))),
        )


Clauses = tuple[Clause, ...]
ALWAYS: Final[Clauses] = (Clause(),)
NEVER: Final[Clauses] = ()


def clauses(predicate: Expr, facts: Facts) -> Clauses:
    """The union of clauses that equals `predicate`."""
    found = tuple(_tidy(c, facts) for c in _Solver(facts).of(predicate) if not _contradicts(c, facts))
    return tuple(c for n, c in enumerate(found) if not _is_implied(c, found[:n], found[n + 1 :]))


def _is_implied(clause: Clause, before: Clauses, after: Clauses) -> bool:
    """Is another clause weaker in every part; of two that say the same, in whatever order, the first stays."""
    return any(_covers(c, clause) for c in before) or any(_covers(c, clause) and not _covers(clause, c) for c in after)


def _covers(wide: Clause, narrow: Clause) -> bool:
    return all(set(w) <= set(n) for w, n in zip(_parts(wide), _parts(narrow), strict=True))


def _parts(clause: Clause) -> tuple[tuple[object, ...], ...]:
    return clause.lowers, clause.uppers, clause.rows, clause.rest


def _contradicts(clause: Clause, facts: Facts) -> bool:
    if BoolLit(False) in clause.rows or BoolLit(False) in clause.rest:
        return True
    return any(at_most(u + 1, low, facts) for u in clause.uppers for low in (*clause.lowers, Poly(())))


def _tidy(clause: Clause, facts: Facts) -> Clause:
    """The clause without bounds that another bound, or j >= 0, implies."""
    lowers = [b for b in clause.lowers if not at_most(b, Poly(()), facts)]
    return Clause(
        _strongest(lowers, lambda a, b: at_most(b, a, facts)),
        _strongest(list(clause.uppers), lambda a, b: at_most(a, b, facts)),
        tuple(r for r in clause.rows if r != BoolLit(True)),
        tuple(r for r in clause.rest if r != BoolLit(True)),
    )


def _strongest(bounds: list[Poly], implies: Callable[[Poly, Poly], bool]) -> tuple[Poly, ...]:
    kept: list[Poly] = []
    for bound in bounds:
        if any(implies(k, bound) for k in kept):
            continue
        kept = [k for k in kept if not implies(bound, k)]
        kept.append(bound)
    return tuple(kept)


def reads_key(expr: Expr) -> bool:
    return "j" in free_names(expr)


@dataclass(frozen=True, slots=True)
class _Solver:
    facts: Facts

    def of(self, predicate: Expr) -> Clauses:
        match predicate:
            case BoolLit(value):
                return ALWAYS if value else NEVER
            case Binary("&", left, right):
                return self._conjunction(left, right)
            case Binary("|", left, right):
                parts = self.of(left) + self.of(right)
                return parts if len(parts) <= MAX_CLAUSES else self._whole(predicate)
            case Unary("~", operand) if negated(operand) != predicate:
                return self.of(negated(operand))
            case Call("where", (condition, then, otherwise)):
                return self._conjunction(condition, then) + self._conjunction(negated(condition), otherwise)
            case _:
                return self._atom(predicate)

    def _conjunction(self, left: Expr, right: Expr) -> Clauses:
        a, b = self.of(left), self.of(right)
        if len(a) * len(b) > MAX_CLAUSES:
            a, b = min(a, self._whole(left), key=len), min(b, self._whole(right), key=len)
        return _and(a, b)

    def _whole(self, predicate: Expr) -> Clauses:
        return (Clause(rest=(predicate,)),) if reads_key(predicate) else (Clause(rows=(predicate,)),)

    def _atom(self, predicate: Expr) -> Clauses:
        if not reads_key(predicate):
            return (Clause(rows=(normal_predicate(predicate),)),)
        match predicate:
            case Binary(op, left, right) if op in MIRRORED:
                solved = self._comparison(op, poly(left) - poly(right))
                return (Clause(rest=(predicate,)),) if solved is None else solved
            case _:
                return (Clause(rest=(predicate,)),)

    def _comparison(self, op: str, d: Poly) -> Clauses | None:
        """`d op 0` solved for j; None where it has no solution in bounds."""
        match op:
            case ">=":
                return self._nonnegative(d)
            case ">":
                return self._nonnegative(d - 1)
            case "<=":
                return self._nonnegative(-d)
            case "<":
                return self._nonnegative(-d - 1)
            case "==":
                below, above = self._nonnegative(-d), self._nonnegative(d)
                return None if below is None or above is None else _and(above, below)
            case _:
                below, above = self._nonnegative(-d - 1), self._nonnegative(d - 1)
                return None if below is None or above is None else below + above

    def _nonnegative(self, d: Poly) -> Clauses | None:
        """`d >= 0` solved for j."""
        with_key = [(m, c) for m, c in d.terms if any(reads_key(a) for a in m)]
        if not with_key:
            return (Clause(rows=(compared(">=", d),)),)
        if len(with_key) > 1:
            return self._folded(d)
        ((monomial, coefficient),) = with_key
        atoms = [a for a in monomial if reads_key(a)]
        if len(atoms) > 1:
            return None
        factor = Poly(((tuple(a for a in monomial if a not in atoms), abs(coefficient)),))
        if not positive(factor, self.facts):
            return None
        rest = d.without(monomial)
        if coefficient > 0:  # atom >= ceil(-rest / factor)
            return self._at_least(atoms[0], -floor_div(rest, factor))
        return self._at_most(atoms[0], floor_div(rest, factor))

    def _folded(self, d: Poly) -> Clauses | None:
        """`d >= 0` where several terms read j: minimum, maximum, abs and where by cases, as one of them allows."""
        for monomial, coefficient in d.terms:
            if len(monomial) == 1 and reads_key(monomial[0]) and monomial[0] != KEY:
                cases = self._cases(d, monomial, coefficient)
                if cases is not None:
                    return cases
        return None

    def _cases(self, d: Poly, monomial: Monomial, coefficient: int) -> Clauses | None:
        found = opened(d, monomial, coefficient)
        return None if found is None else self._joined(*found)

    def _joined(self, every: bool, options: tuple[Poly, Poly]) -> Clauses | None:
        a, b = self._nonnegative(options[0]), self._nonnegative(options[1])
        if a is None or b is None:
            return None
        return _and(a, b) if every else a + b

    def _at_least(self, atom: Expr, bound: Poly) -> Clauses | None:
        match atom:
            case Name("j"):
                return (Clause(lowers=(bound,)),)
            case Binary("//", value, by) if self._is_positive(by):  # v // n >= b: v >= n * b
                return self._nonnegative(poly(value) - poly(by) * bound)
            case _:
                return self._cases(Poly.atom(atom) - bound, (atom,), 1) or self._where(atom, bound, ">=")

    def _at_most(self, atom: Expr, bound: Poly) -> Clauses | None:
        match atom:
            case Name("j"):
                return (Clause(uppers=(bound,)),)
            case Binary("//", value, by) if self._is_positive(by):  # v // n <= b: v < n * (b + 1)
                return self._nonnegative(poly(by) * (bound + 1) - 1 - poly(value))
            case _:
                return self._cases(bound - Poly.atom(atom), (atom,), -1) or self._where(atom, bound, "<=")

    def _where(self, atom: Expr, bound: Poly, op: str) -> Clauses | None:
        match atom:
            case Call("where", (condition, then, otherwise)):
                a, b = self._comparison(op, poly(then) - bound), self._comparison(op, poly(otherwise) - bound)
                if a is None or b is None:
                    return None
                return _and(self.of(condition), a) + _and(self.of(negated(condition)), b)
            case _:
                return None

    def _is_positive(self, expr: Expr) -> bool:
        return not reads_key(expr) and positive(poly(expr), self.facts)


def _and(left: Clauses, right: Clauses) -> Clauses:
    return tuple(a.and_(b) for a, b in product(left, right))
