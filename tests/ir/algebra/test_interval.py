from __future__ import annotations

from cubridge.ir.algebra.interval import EVERYTHING, REALS, Interval, image


def test_what_takes_other_arguments_is_unknown() -> None:
    """Texts are judged before their types are known to hold."""
    assert image("minimum", [Interval(0, 1)], REALS) == EVERYTHING
    assert image("no_such_function", [Interval(0, 1)], REALS) == EVERYTHING
