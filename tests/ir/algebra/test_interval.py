from __future__ import annotations

from itertools import product

from cubridge.ir.algebra.interval import EVERYTHING, INTEGERS, REALS, Interval, image


def test_what_takes_other_arguments_is_unknown() -> None:
    """Texts are judged before their types are known to hold."""
    assert image("minimum", [Interval(0, 1)], REALS) == EVERYTHING
    assert image("no_such_function", [Interval(0, 1)], REALS) == EVERYTHING


def test_quotients_by_negative_numbers() -> None:
    for low, high in ((-9, -2), (-3, -3)):
        found = image("//", [Interval(-7, 5), Interval(low, high)], INTEGERS)
        values = [a // b for a, b in product(range(-7, 6), range(low, high + 1))]
        assert found == Interval(min(values), max(values))
    assert image("//", [Interval(-7, 5), Interval(-2, 2)], INTEGERS) == EVERYTHING
