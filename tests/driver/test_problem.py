"""Shapes of a check are changed as little as a reference's preconditions ask."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cubridge.driver.problem import fitting_shapes
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import Precondition, Shape
from tests.driver.specs import softmax_spec

WANTED = Shape(1, 4, 2, 200, 330, 64)


@pytest.mark.parametrize(
    ("requires", "fitted"),
    [
        ((), WANTED),
        (("Lk == Lq",), replace(WANTED, Lk=200)),
        (("Hq == Hk",), replace(WANTED, Hq=2)),
        (("Lk == Lq", "Hq == Hk"), replace(WANTED, Lk=200, Hq=2)),
        (("Hq == 3 * Hk",), replace(WANTED, Hq=6)),
        (("Hk == 5", "Hq == 15"), replace(WANTED, Hk=5, Hq=15)),
        (("B == 2", "Lk == Lq"), replace(WANTED, B=2, Lk=200)),
        (("Lq <= 400",), WANTED),
    ],
)
def test_fits(requires: tuple[str, ...], fitted: Shape) -> None:
    spec = replace(softmax_spec(), preconditions=tuple(Precondition(parse_expr(r)) for r in requires))
    assert fitting_shapes(spec, [WANTED]) == [fitted]


def test_a_shape_that_cannot_fit_is_left_out() -> None:
    spec = replace(softmax_spec(), preconditions=(Precondition(parse_expr("Lq >= 500")),))
    assert fitting_shapes(spec, [WANTED]) == []
