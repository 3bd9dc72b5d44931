"""Shapes of a check are changed as little as a reference's preconditions ask."""

# pyright: basic

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cubridge.driver.bound import VAGUE
from cubridge.driver.problem import Problem, fitting_shapes, make_problem
from cubridge.driver.reference import read_reference
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


def test_rows_of_fills_alone_are_not_compared_but_must_be_numbers() -> None:
    problem = filled_problem()
    assert problem.filled is not None
    assert problem.filled.sum() == 40  # rows 0 to 19 of two heads
    assert problem.vagueness < VAGUE
    out, lse = problem.out.clone(), torch.zeros(1, 2, 50)
    problem = replace(problem, lse=lse)
    out[:, :, :20], lse[:, :, :20] = 0.0, -torch.inf
    assert problem.judge(out, lse).accepted
    out[0, 1, 19, 3] = torch.nan
    assert not problem.judge(out, lse).accepted


def filled_problem() -> Problem:
    """An additive mask, bottom-right, of the lowest number of bf16, where there are fewer keys than rows."""

    def masked(q, k, v, bias):
        return torch.softmax(q @ k.mT * 0.125 + bias, -1) @ v

    def extra_inputs(shape, device):
        keep = torch.ones(shape.Lq, shape.Lk, dtype=torch.bool).tril(shape.Lk - shape.Lq)
        return {"bias": torch.zeros(shape.Lq, shape.Lk).masked_fill(~keep, torch.finfo(torch.bfloat16).min)}

    attention = read_reference(masked, extra_inputs=extra_inputs).attention
    return make_problem(attention, "random", Shape(1, 2, 2, 50, 30, 64), 0, "bf16", {})
