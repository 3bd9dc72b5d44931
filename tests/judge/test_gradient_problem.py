"""Gradients of every example: what is derived is right, what is wrong in a plausible way is told from it, and kernels that round as
the hardware does stay within the bound."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cubridge.derive.gradient import derive
from cubridge.engine.dense_gradient import (
    Gradients,
    PairValues,
    RowValues,
    forward,
    gradient_values,
    pair_values,
    row_terms,
    row_values,
    sums,
    with_rows,
)
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.gradient import GradientSpec
from cubridge.ir.spec import Shape
from cubridge.judge.attention import Attention, full_attention
from cubridge.judge.gradient_bound import row_sum_error
from cubridge.judge.gradient_mutants import GRADIENT_MUTATIONS, gradient_mutants
from cubridge.judge.gradient_problem import TENSORS, GradientProblem, make_gradient_problem
from tests.passes.specs import elementwise, normalised
from tests.support.readings import reading
from tests.support.specs import softmax_spec
from tests.support.variants import VARIANTS

CASES = (
    ("index-coded V", Shape(1, 4, 2, 12, 12, 16)),
    ("large scores", Shape(1, 6, 2, 14, 11, 16)),
    ("random", Shape(1, 2, 1, 130, 140, 8)),
)
"""Of short rows, whose gradients cancel little; and of rows longer than windows."""


def problems(attention: Attention, gradient: GradientSpec, dtype: str = "bf16") -> list[GradientProblem]:
    cases = [(kind, fit) for kind, shape in CASES for fit in fitting_shapes(attention.spec, [shape])]
    return [
        make_gradient_problem(attention, gradient, kind, shape, n, dtype, {}) for n, (kind, shape) in enumerate(cases)
    ]


def evaluated(gradient: GradientSpec, problem: GradientProblem) -> Gradients:
    p = problem
    return gradient_values(gradient, p.q, p.k, p.v, p.captures, p.dout, p.dlse)


@pytest.mark.parametrize("variant", VARIANTS)
def test_example(variant: str) -> None:
    reference = reading(variant)
    gradient = reference.gradient()
    given = problems(reference.attention, gradient)
    for problem in given:
        judgements = problem.judge(evaluated(gradient, problem))
        assert all(j.worst < 1e-6 for j in judgements.values()), judgements
        assert all(share < 0.7 for share in problem.cancelled.values()), problem.cancelled
        judgements = problem.judge(rounded(gradient, problem))
        assert all(j.accepted for j in judgements.values()), judgements
    wrong = dict(gradient_mutants(gradient))
    assert len(wrong) >= 4
    accepted = [name for name, g in wrong.items() if all(p.accepts(evaluated(g, p)) for p in given)]
    assert not accepted


def rounded(gradient: GradientSpec, problem: GradientProblem, dtype: torch.dtype = torch.bfloat16) -> Gradients:
    """As a backward kernel computes: the output, A, the weights and ds in the half type, what else is saved in fp32; weights and ds
    below the normal numbers of fp32 are 0."""

    def half(t: torch.Tensor) -> torch.Tensor:
        return t.to(dtype).double()

    def normal(t: torch.Tensor) -> torch.Tensor:
        return torch.where(t.abs() < torch.finfo(torch.float32).tiny, 0.0, t)

    p, words = problem, gradient.words
    saved = forward(gradient, p.q, p.k, p.v, p.captures)
    for name in {*gradient.saved}:
        saved.scope[name] = half(saved.scope[name]) if name == words.out else saved.scope[name].float().double()  # pyright: ignore
    saved.scope["x"] = saved.scope["x"].float().double()  # pyright: ignore
    terms = row_terms(saved, saved.scope, p.dout, p.dlse)
    rows = row_values(replace(terms, acc_grad=half(terms.acc_grad)))
    rows = RowValues(rows.acc_grad, {n: c.float().double() for n, c in rows.coefficients.items()})
    pairs = pair_values(saved, with_rows(saved, rows))
    result = sums(saved, rows, PairValues(half(normal(pairs.weight)), half(normal(pairs.score_grad))))
    return Gradients(half(result.dq), half(result.dk), half(result.dv))


def test_every_mutation_applies_somewhere() -> None:
    capped = derive(softmax_spec("30 * tanh(s * D ** -0.5 / 30)"))
    averaged = derive(elementwise("1 / (1 + exp(-x))", "acc / Lk"))
    assert {name for g in (capped, averaged) for name, _ in gradient_mutants(g)} == set(GRADIENT_MUTATIONS)


def test_the_bound_is_no_wider_than_rounding_needs() -> None:
    """Rounded results use up some of it, in both types: the rest is that errors add up, which in a sum of many they do not."""
    attention = full_attention()
    gradient = derive(attention.spec)
    for dtype, half in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        for problem in problems(attention, gradient, dtype)[:2]:
            worst = {n: j.worst for n, j in problem.judge(rounded(gradient, problem, half)).items()}
            assert all(0.02 < w <= 1.0 for w in worst.values()), (dtype, problem.inputs, worst)


def test_errors_of_a_saved_sum_add_up_whatever_their_signs() -> None:
    """Of sum abs(x): scores that are off in the direction that each enlarges."""
    spec = normalised("x", {"l": "sum abs(x)"}, "acc / l")
    attention, gradient = replace(full_attention(), spec=spec), derive(spec)
    problem = make_gradient_problem(attention, gradient, "large scores", Shape(1, 2, 1, 5, 9, 16), 0, "fp16", {})
    p = problem
    saved = forward(gradient, p.q, p.k, p.v, p.captures)
    score = 1e-3 * saved.scope["x"].abs().mean()  # pyright: ignore
    found = row_sum_error(saved, spec.rows[0], score.expand(saved.visible.shape))
    assert torch.allclose(found, torch.full_like(found, 9 * float(score)), rtol=0.05)
    assert problem.accepts(rounded(gradient, problem, torch.float16))


def test_keys_far_behind_every_maximum_may_have_no_gradient() -> None:
    attention = replace(full_attention(), spec=softmax_spec("s * D ** -0.5 - j", mask="j >= 0"))
    gradient = derive(attention.spec)
    problem = make_gradient_problem(attention, gradient, "random", Shape(1, 2, 1, 9, 140, 16), 0, "bf16", {})
    found = rounded(gradient, problem)
    assert not found.dk[:, :, 110:].any() and problem.expected.dk[:, :, 110].all()
    assert problem.accepts(found)


def test_a_gradient_that_cancels_is_said_to() -> None:
    """Where V is 1, dp is delta: the weights have no gradient, and what a kernel gives is rounding alone."""
    attention = replace(full_attention(), spec=replace(full_attention().spec, lse=None))
    gradient = derive(attention.spec)
    problem = make_gradient_problem(attention, gradient, "constant V", Shape(1, 2, 1, 9, 12, 16), 0, "bf16", {})
    assert problem.cancelled["dq"] == problem.cancelled["dk"] == 1.0
    assert problem.cancelled["dv"] < 0.1
    assert problem.accepts(rounded(gradient, problem))


def test_a_nan_is_wrong_where_a_row_sees_no_key() -> None:
    attention = replace(full_attention(), spec=softmax_spec(mask="j < i - 3"))
    gradient = derive(attention.spec)
    problem = make_gradient_problem(attention, gradient, "random", Shape(1, 2, 1, 9, 9, 16), 0, "bf16", {})
    right = evaluated(gradient, problem)
    assert problem.accepts(right) and not right.dq[:, :, :4].any()
    poisoned = {n: getattr(right, n).clone() for n in TENSORS}
    poisoned["dq"][0, 0, 0, 0] = torch.nan
    assert not problem.accepts(Gradients(**poisoned))
