"""Shapes of a check are changed as little as a reference's preconditions ask."""

# pyright: basic

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cubridge.driver.reference import read_reference
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.spec import Shape
from cubridge.judge.bound import VAGUE
from cubridge.judge.problem import Problem, make_problem


def test_rows_of_fills_alone_are_not_compared_but_must_be_numbers() -> None:
    problem = filled_problem()
    assert problem.filled is not None
    assert problem.filled.sum() == 40  # rows 0 to 19 of two heads
    assert problem.vagueness < VAGUE
    out, lse = problem.out.clone(), torch.zeros(1, 2, 50)
    assert replace(problem, lse=None).judge(problem.out, lse).accepted
    problem = replace(problem, lse=lse)
    out[:, :, :20], lse[:, :, :20] = 0.0, -torch.inf
    assert problem.judge(out, lse).accepted
    out[0, 1, 20, 3] += 1.0
    assert not problem.judge(out, lse).accepted
    out[0, 1, 20, 3] -= 1.0
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


@pytest.mark.parametrize("weight", [torch.nn.functional.softplus, lambda s: 1 / (1 + torch.exp(-s))])
def test_bounds_are_numbers_where_an_exponential_overflows(weight) -> None:
    def attention(q, k, v):
        return (weight((q @ k.mT).float() * 200) / k.shape[2]).to(v.dtype) @ v

    problem = make_problem(read_reference(attention).attention, "random", Shape(1, 1, 1, 40, 30, 64), 0, "bf16", {})
    assert problem.bound.isfinite().all()
    assert problem.vagueness < VAGUE
    assert problem.judge(problem.out.bfloat16(), None).accepted
    assert not problem.judge(problem.out.bfloat16() * 1.05, None).accepted


def test_the_bound_of_an_lse_knows_the_scores_that_it_sums() -> None:
    """A mask put on after the softmax hides keys from the output alone."""

    def attention(q, k, v):
        s = 20.0 * torch.tanh(q @ k.mT * 0.125 / 20.0)
        hidden = torch.arange(k.shape[2]) > 0
        return torch.softmax(s, -1).masked_fill(hidden, 0.0) @ v, torch.logsumexp(s, -1)

    shape = Shape(1, 1, 1, 40, 30, 64)
    traced = read_reference(attention).attention
    exact, rough = (
        make_problem(traced, "random", shape, 0, "bf16", {"tanh": FUNCTIONS[name]}) for name in ("tanh", "tanh_approx")
    )
    s = 20.0 * torch.tanh(rough.q.double() @ rough.k.double().mT * 0.125 / 20.0)
    added = (rough.lse_bound - exact.lse_bound) / FUNCTIONS["tanh_approx"].rel_error
    assert (added > 0.9 * s.abs().amax(-1)).all()


def test_captured_parameters_are_compared_without_their_gradients() -> None:
    def biased(q, k, v, bias):
        return (q @ k.mT + bias).softmax(-1).to(v.dtype) @ v

    shape = Shape(1, 2, 2, 5, 7, 64)
    made = lambda s, _: {"bias": torch.nn.Parameter(torch.zeros(s.Lk))}  # noqa: E731
    attention = read_reference(biased, shape=shape, extra_inputs=made).attention
    problem = make_problem(attention, "random", shape, 1, "bf16", {})
    assert not any(x.requires_grad for x in (problem.out, problem.bound, problem.captures["bias"]))
