"""Which integers cannot be negative: there C's `/` and `%`, which truncate, are CuIR's `//` and `%`, which floor.

Sums are polynomials over terms that are never negative. A negative monomial is paid for where it is a share of a quotient:
`x - k * (x // (k * d))` cannot be negative, because a quotient of natural numbers is at most their ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cubridge.ir.coordinates import THREAD_NAMES
from cubridge.ir.nodes import SIZES, Attr, Binary, Call, Expr, IntLit, Name, Unary
from cubridge.ir.region_types import ACCESSORS, TILE_FIELDS
from cubridge.ir.walk import walk

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]

NATURAL_NAMES: Final = frozenset((*SIZES, *ACCESSORS, "kv_start", *THREAD_NAMES))
NATURAL_FIELDS: Final = frozenset(Attr(Name("tile"), x) for x in TILE_FIELDS)
_MAX_DEPTH: Final = 40
_MAX_STEPS: Final = 2000
"""Of one proof; what takes longer is not proved."""


@dataclass(slots=True)
class Facts:
    """What is known of names: `constants` by value, `definitions` of locals and parameters, `upper` bounds of natural names;
    `naturals` are names that are never negative here, with the names that this rests on in `reasons`. `relied`: the names that
    divisions rest on."""

    constants: Callable[[str], int | float | None]
    naturals: frozenset[str] = frozenset()
    definitions: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    upper: Mapping[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    reasons: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    relied: frozenset[str] = frozenset()
    asked: set[str] = field(default_factory=set[str])
    """Of `naturals`, by the proof that is under way."""
    steps: int = 0
    """Of the proof that is under way."""

    def changes(self, name: Name) -> None:
        """`name` is about to get another value: of what it defined, only the signs stay known."""
        for other in [n for n, made in self.definitions.items() if n != name and name in walk(made)]:
            self.settle(other)

    def settle(self, name: Expr) -> None:
        """Keep of the definition of a name its sign alone."""
        reasons = natural_by(name, self)
        self.definitions.pop(name, None)
        if reasons is not None and isinstance(name, Name):
            self.keep(name.id, reasons)

    def keep(self, name: str, reasons: frozenset[str]) -> None:
        """`name` is never negative if `reasons` are not."""
        self.naturals |= {name}
        self.reasons[name] = self.reasons.get(name, frozenset()) | reasons - {name}

    def rests_on(self) -> frozenset[str]:
        """`relied`, and what that rests on."""
        found, new = set[str](), set(self.relied)
        while new:
            found |= new
            new = {reason for name in new for reason in self.reasons.get(name, ())} - found
        return frozenset(found)


def is_natural(expr: Expr, facts: Facts) -> bool:
    """Is this integer provably at least 0?"""
    return natural_by(expr, facts) is not None


def natural_by(expr: Expr, facts: Facts) -> frozenset[str] | None:
    """The names of `facts.naturals` that a proof of it may rest on; None where this integer may be negative."""
    trial = replace(facts, asked=set(), steps=0)
    return frozenset(trial.asked) if _natural(expr, trial, 0) else None


def _natural(expr: Expr, facts: Facts, depth: int) -> bool:
    facts.steps += 1
    if depth > _MAX_DEPTH or facts.steps > _MAX_STEPS:
        return False

    def natural(x: Expr) -> bool:
        return _natural(x, facts, depth + 1)

    match expr:
        case IntLit(value):
            return value >= 0
        case _ if expr in NATURAL_FIELDS:
            return True
        case Name(name) if name in NATURAL_NAMES:
            return True
        case Name(name) if name in facts.naturals:
            facts.asked.add(name)
            return True
        case Name() | Attr() if expr in facts.definitions:
            return natural(facts.definitions[expr])
        case Name(name):
            value = facts.constants(name)
            return value is not None and value >= 0
        case Call("minimum", (a, b)) | Call("where", (_, a, b)):
            return natural(a) and natural(b)
        case Call("maximum", (a, b)):
            return natural(a) or natural(b)
        case Call("ceil_div", (a, b)) | Binary("//" | "**", a, b):
            return natural(a) and natural(b)
        case Binary("%", _, b) | Call("floor_mod", (_, b)):
            return natural(b)
        case Call("abs" | "key_count"):
            return True
        case Binary("+" | "*", a, b) if natural(a) and natural(b):
            return True
        case Binary("+" | "-" | "*"):
            return _sum_natural(_polynomial(expr, facts, depth), facts, depth + 1)
        case _:
            return False


# ---- sums ------------------------------------------------------------------------------------------------------------


def _polynomial(expr: Expr, facts: Facts, depth: int) -> Polynomial:
    facts.steps += 1
    if facts.steps > _MAX_STEPS:
        return {(expr,): 1}
    match expr:
        case IntLit(value):
            return {(): value} if value else {}
        case Name() | Attr() if expr in facts.definitions and depth < _MAX_DEPTH:
            return _polynomial(facts.definitions[expr], facts, depth + 1)
        case Name(name) if isinstance(value := facts.constants(name), int):
            return {(): value} if value else {}
        case Binary("+", a, b):
            return _add(_polynomial(a, facts, depth), _polynomial(b, facts, depth), 1)
        case Binary("-", a, b):
            return _add(_polynomial(a, facts, depth), _polynomial(b, facts, depth), -1)
        case Unary("-", a):
            return _add({}, _polynomial(a, facts, depth), -1)
        case Binary("*", a, b):
            return _multiply(_polynomial(a, facts, depth), _polynomial(b, facts, depth))
        case _:
            return {(expr,): 1}


def _add(a: Polynomial, b: Polynomial, factor: int) -> Polynomial:
    result = dict(a)
    for monomial, coefficient in b.items():
        result[monomial] = result.get(monomial, 0) + factor * coefficient
    return {m: c for m, c in result.items() if c}


def _multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = tuple(sorted((*left, *right), key=repr))
            result[monomial] = result.get(monomial, 0) + x * y
    return {m: c for m, c in result.items() if c}


def _sum_natural(sum_: Polynomial, facts: Facts, depth: int) -> bool:
    """Is a sum at least 0? Tries, for a negative monomial: a bound of one of its terms, or the dividend of a quotient in it."""
    if depth > _MAX_DEPTH:
        return False
    sum_ = _without_common(sum_, lambda term: _natural(term, facts, depth + 1))
    negative = [m for m, c in sum_.items() if c < 0]
    if not negative:
        return all(_natural(term, facts, depth + 1) for m in sum_ for term in m)
    if any(not _natural(term, facts, depth + 1) for m in sum_ if m not in negative for term in m):
        return _choices(sum_, facts, depth)
    for monomial in negative:
        for at, term in enumerate(monomial):
            others = (*monomial[:at], *monomial[at + 1 :])
            for larger in _larger(sum_, monomial, others, term, facts, depth):
                if _sum_natural(larger, facts, depth + 4):
                    return True
    return _choices(sum_, facts, depth)


def _larger(
    sum_: Polynomial, monomial: Monomial, others: Monomial, term: Expr, facts: Facts, depth: int
) -> list[Polynomial]:
    """Sums that are at least 0 only if `sum_` is, made by replacing `term` of a negative monomial by something no smaller."""
    if not all(_natural(x, facts, depth + 1) for x in others):
        return []
    coefficient = sum_[monomial]
    rest = {m: c for m, c in sum_.items() if m != monomial}
    match term:
        case Binary("//", a, b) if _natural(a, facts, depth + 1) and _natural(b, facts, depth + 1):
            divisor, dividend = _polynomial(b, facts, depth), _polynomial(a, facts, depth)
            return [_add(_multiply(rest, divisor), _multiply(dividend, {others: 1}), coefficient)]
        case _ if term in facts.upper:
            bound = _polynomial(facts.upper[term], facts, depth)
            return [_add(rest, _multiply(bound, {others: 1}), coefficient)]
        case _:
            return []


def _choices(sum_: Polynomial, facts: Facts, depth: int) -> bool:
    """Opens a `minimum` (both must hold) or a `maximum` (one must) that stands as a term of its own."""
    for monomial, coefficient in sum_.items():
        if len(monomial) != 1 or abs(coefficient) != 1:
            continue
        match monomial[0]:
            case Call("minimum" | "maximum" as kind, (a, b)):
                rest = {m: c for m, c in sum_.items() if m != monomial}
                parts = (_add(rest, _polynomial(x, facts, depth), coefficient) for x in (a, b))
                holds = [_sum_natural(p, facts, depth + 4) for p in parts]
                return all(holds) if (kind == "minimum") == (coefficient > 0) else any(holds)
            case _:
                pass
    return False


def _without_common(sum_: Polynomial, natural: Callable[[Expr], bool]) -> Polynomial:
    """Divides by the natural terms that all monomials share."""
    if not sum_:
        return sum_
    common = list(next(iter(sum_)))
    for monomial in sum_:
        left = list(monomial)
        common = [t for t in common if t in left and not left.remove(t)]
    common = [t for t in common if natural(t)]
    result: Polynomial = {}
    for monomial, coefficient in sum_.items():
        left = list(monomial)
        for term in common:
            left.remove(term)
        result[tuple(left)] = coefficient
    return result
