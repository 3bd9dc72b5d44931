"""The interval of each product of a real formula: sizes and indices have limits, and some functions have values within 1 of 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from cubridge.judge.proof.integers import BEYOND, INDICES
from cubridge.judge.proof.sums import Atom, Product
from cubridge.verify.ranges import LIMITS

BOUNDED: Final = ("tanh", "erf", "sin", "cos")


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, both included; None where there is no end."""

    low: Fraction | None = None
    high: Fraction | None = None

    def times(self, other: Interval) -> Interval:
        """Of two intervals that begin at 0 or above, or that have both ends."""
        if self.is_positive and other.is_positive:
            return Interval(_product(self.low, other.low), _product(self.high, other.high))
        ends = [
            a * b for a in (self.low, self.high) for b in (other.low, other.high) if a is not None and b is not None
        ]
        return Interval(min(ends), max(ends)) if len(ends) == 4 else Interval()

    @property
    def is_positive(self) -> bool:
        return self.low is not None and self.low >= 0


def _product(a: Fraction | None, b: Fraction | None) -> Fraction | None:
    return None if a is None or b is None else a * b


_ONE: Final = Interval(Fraction(1), Fraction(1))
_NAMED: Final[Mapping[str, Interval]] = {
    **{name: Interval(Fraction(1), Fraction(limit)) for name, limit in LIMITS.items()},
    **{index: Interval(Fraction(0), Fraction(LIMITS[size] - 1)) for index, size in INDICES.items()},
    "j": Interval(Fraction(0), Fraction(LIMITS["Lk"] + BEYOND)),
    "LN2": Interval(Fraction(6931, 10000), Fraction(6932, 10000)),
    "pi": Interval(Fraction(31415, 10000), Fraction(31416, 10000)),
}


def interval_of(product: Product) -> Interval:
    """What is known of a product without looking at others."""
    if product.exponent is not None:
        return Interval()
    found = _ONE
    for atom, power in product.powers:
        found = found.times(_power(_of_atom(atom), power))
    return found


def _of_atom(atom: Atom) -> Interval:
    if atom.name in _NAMED:
        return _NAMED[atom.name]
    if atom.name.split(" ")[0] in BOUNDED:
        return Interval(Fraction(-1), Fraction(1))
    return Interval() if atom.sign is None else Interval(Fraction(0))


def _power(base: Interval, power: Fraction) -> Interval:
    if power.denominator != 1 or power < 0:
        return Interval(Fraction(0)) if base.is_positive else Interval()
    found = _ONE
    for _ in range(power.numerator):
        found = found.times(base)
    is_square = power.numerator % 2 == 0
    return Interval(Fraction(0), found.high) if is_square and not base.is_positive else found
