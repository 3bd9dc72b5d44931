"""Intervals of numbers, and what the functions of CuIR make of them.

An image holds every value that the function has on the intervals; a division has none where its divisor is 0. Numbers are exact
where they are integers; infinities are the ends of what has no bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cubridge.ir.algebra.exprs import operation
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.nodes import BoolLit, Expr, FloatLit, IntLit

_LEAST_POSITIVE: Final = 5e-324
"""A lower end that is greater than 0."""


@dataclass(frozen=True, slots=True)
class Interval:
    """All numbers from `low` to `high`, both included."""

    low: float
    high: float

    @staticmethod
    def exactly(value: float) -> Interval:
        return Interval(value, value)

    def __add__(self, other: Interval) -> Interval:
        return Interval(_plus(self.low, other.low), _plus(self.high, other.high))

    def __sub__(self, other: Interval) -> Interval:
        return self + -other

    def __mul__(self, other: Interval) -> Interval:
        return _hull(_times(a, b) for a in (self.low, self.high) for b in (other.low, other.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    @property
    def is_bounded(self) -> bool:
        return not (math.isinf(self.low) or math.isinf(self.high))

    def hull(self, other: Interval) -> Interval:
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def above(self, least: float) -> Interval:
        """Those of its numbers that are no less than `least`."""
        return Interval(max(self.low, least), max(self.high, least))


EVERYTHING: Final = Interval(-math.inf, math.inf)
NONNEGATIVE: Final = Interval(0, math.inf)
POSITIVE: Final = Interval(_LEAST_POSITIVE, math.inf)
_WITHIN_ONE: Final = Interval(-1, 1)
AT_LEAST_ONE: Final = Interval(1, math.inf)


def bounds(value: Poly, of_atom: Callable[[Expr], Interval]) -> Interval:
    """The interval of a polynomial: exact where each atom occurs once."""
    total = Interval(0, 0)
    for monomial, coefficient in value.terms:
        term = Interval.exactly(coefficient)
        for atom in monomial:
            term = term * of_atom(atom)
        total = total + term
    return total


# ---- arithmetic with infinite ends -----------------------------------------------------------------------------------


def _hull(corners: Iterable[float]) -> Interval:
    ends = tuple(corners)
    return Interval(min(ends), max(ends))


def _plus(a: float, b: float) -> float:
    """An infinite end stays one, also beside an integer that no float holds."""
    return a if math.isinf(a) else b if math.isinf(b) else a + b


def _times(a: float, b: float) -> float:
    """0 times an infinite end is 0, and what is not 0 stays so, however small."""
    if a == 0 or b == 0:
        return 0
    return a * b or math.copysign(_LEAST_POSITIVE, a) * math.copysign(1, b)


def _without_zero(by: Interval) -> Interval:
    """Divisors that are integers: 0 is none."""
    return Interval(1, by.high) if by.low == 0 and by.high >= 1 else by


def _floor_div(value: Interval, by: Interval) -> Interval:
    by = _without_zero(by)
    if by.high < 0:
        return _floor_div(-value, -by)
    if by.low <= 0:
        return EVERYTHING
    return _hull(_floor_quotient(a, b) for a in (value.low, value.high) for b in (by.low, by.high))


def _floor_quotient(a: float, b: float) -> float:
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return a if math.isinf(a) else a // b


def _floor_mod(value: Interval, by: Interval) -> Interval:
    by = _without_zero(by)
    if by.low <= 0:
        return Interval(min(by.low + 1, 0), max(by.high - 1, 0))
    if by.low == by.high and value.is_bounded and value.low // by.low == value.high // by.low:
        return Interval(value.low % by.low, value.high % by.low)
    return Interval(0, by.high - 1)


def _quotient(value: Interval, by: Interval) -> Interval:
    if by.low <= 0:
        return EVERYTHING
    return _hull(_ratio(a, b) for a in (value.low, value.high) for b in (by.low, by.high))


def _ratio(a: float, b: float) -> float:
    return a if a == 0 or math.isinf(a) else a / b or math.copysign(_LEAST_POSITIVE, a)


def _absolute(value: Interval) -> Interval:
    top = max(abs(value.low), abs(value.high))
    return Interval(0 if value.low <= 0 <= value.high else min(abs(value.low), abs(value.high)), top)


def _power(base: Interval, power: Interval) -> Interval:
    if base.low > 0:
        return AT_LEAST_ONE if base.low >= 1 and power.low >= 0 else POSITIVE
    return NONNEGATIVE if base.low >= 0 else EVERYTHING


def _root(value: Interval) -> Interval:
    return _power(value, Interval(0.5, 0.5))


def _rounded(to: Callable[[float], int]) -> Callable[[Interval], Interval]:
    """The image of a monotone function to integers."""
    return lambda value: Interval(*(end if math.isinf(end) else to(end) for end in (value.low, value.high)))


# ---- images ----------------------------------------------------------------------------------------------------------

Image = Callable[..., Interval]
Images = Mapping[tuple[str, int], Image]
"""By operator or function, and how many arguments it takes."""

INTEGERS: Final[Images] = {
    ("+", 2): Interval.__add__,
    ("-", 2): Interval.__sub__,
    ("-", 1): Interval.__neg__,
    ("*", 2): Interval.__mul__,
    ("//", 2): _floor_div,
    ("floor_div", 2): _floor_div,
    ("%", 2): _floor_mod,
    ("floor_mod", 2): _floor_mod,
    ("ceil_div", 2): lambda value, by: -_floor_div(-value, by),
    ("minimum", 2): lambda a, b: Interval(min(a.low, b.low), min(a.high, b.high)),
    ("maximum", 2): lambda a, b: Interval(max(a.low, b.low), max(a.high, b.high)),
    ("where", 3): lambda _, a, b: a.hull(b),
    ("**", 2): _power,
    ("abs", 1): _absolute,
    ("i32", 1): _rounded(math.trunc),
    ("i64", 1): _rounded(math.trunc),
}
"""Of integers."""

NUMBERS: Final[Images] = {**INTEGERS, ("/", 2): _quotient, ("f32", 1): lambda value: value}
"""Those, and of floats such that no value is NaN where the arguments have bounds."""

REALS: Final[Images] = {
    **NUMBERS,
    ("exp", 1): lambda _: POSITIVE,
    ("exp2", 1): lambda _: POSITIVE,
    ("sqrt", 1): _root,
    ("rsqrt", 1): lambda value: POSITIVE if value.low > 0 else EVERYTHING,
    ("floor", 1): _rounded(math.floor),
    ("ceil", 1): _rounded(math.ceil),
    ("round", 1): _rounded(round),
    **{(fn, 1): lambda _: _WITHIN_ONE for fn in ("tanh", "tanh_approx", "erf", "sin", "cos")},
}
"""Those of finite numbers."""


def image(fn: str, arguments: Sequence[Interval], images: Images) -> Interval:
    """What an operator or function makes of `arguments`: EVERYTHING where `images` has no rule for so many."""
    rule = images.get((fn, len(arguments)))
    return EVERYTHING if rule is None else rule(*arguments)


def image_of(expr: Expr, of: Callable[[Expr], Interval], images: Images) -> Interval:
    """An interval of a literal, or what the outermost operation makes of the intervals of its operands."""
    if isinstance(expr, IntLit | FloatLit | BoolLit):
        return Interval.exactly(expr.value)
    outermost = operation(expr)
    return EVERYTHING if outermost is None else image(outermost[0], [of(x) for x in outermost[1]], images)
