"""Rows without a key: the LSE is what the reference gives, and neither engine nor oracle takes -inf for granted."""
# pyright: basic

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.reference import read_reference
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import Shape
from cubridge.judge.problem import make_problem
from tests.frontend.reference.references.helpers import repeated

SHAPE = Shape(2, 2, 1, 5, 70, 64)


def lengths(shape, device):
    return {"used": torch.arange(shape.B, device=device) * 40}


def masked(q, k, used):
    s = (q @ repeated(k, q).mT).float() * q.shape[-1] ** -0.5
    return s.masked_fill(torch.arange(k.shape[2]) >= used[:, None, None, None], -torch.inf)


def joined_by_a_sink(q, k, v, used):
    s = masked(q, k, used)
    lse = torch.cat([s, torch.full((*s.shape[:3], 1), 0.5)], -1).logsumexp(-1)
    return torch.exp(s - lse[..., None]).to(v.dtype) @ repeated(v, q), lse


def off_by_one(q, k, v, used):
    lse = torch.nn.functional.softplus(masked(q, k, used).logsumexp(-1))
    return torch.exp(masked(q, k, used) - lse[..., None]).to(v.dtype) @ repeated(v, q), lse


def plain(q, k, v, used):
    s = masked(q, k, used)
    return s.softmax(-1).nan_to_num(0.0).to(v.dtype) @ repeated(v, q), s.logsumexp(-1)


def without_number(q, k, v, used):
    s = masked(q, k, used)
    top = s.amax(-1, keepdim=True)
    lse = (s - top).exp().sum(-1).log() + top[..., 0]  # -inf - -inf
    return s.softmax(-1).nan_to_num(0.0).to(v.dtype) @ repeated(v, q), lse


def picked(q, k, v, used):
    """An epsilon in the unit of a maximum that begins at 0."""
    s = masked(q, k, used)
    top = s.amax(-1, keepdim=True).clamp_min(0.0)
    above = torch.exp(s - top) - torch.exp(-top)
    total = torch.where(s.isfinite(), above.abs(), 0.0).sum(-1, keepdim=True) + 1e-6
    return (torch.relu(above) / total).to(v.dtype) @ repeated(v, q), (total.log() + top)[..., 0]


def filled(q, k, v, used):
    s = masked(q, k, used).clamp_min(-1e9)
    return s.softmax(-1).to(v.dtype) @ repeated(v, q), s.logsumexp(-1)


EXPECTED = {
    joined_by_a_sink: (0.5, ()),
    off_by_one: (0.0, ()),
    picked: (log(1e-6), ()),
    plain: (-torch.inf, ()),
    without_number: (-torch.inf, ("LSE is NaN there",)),
}  # fmt: skip


@pytest.mark.parametrize("function", EXPECTED, ids=lambda f: f.__name__)
def test_the_lse_is_what_the_reference_says(function) -> None:
    expected, warns = EXPECTED[function]
    adapted = adapt_unchecked(function, "sm80", extra_inputs=lengths)
    warnings = [w.message for w in adapted.reference.attention.spec.warnings]
    assert len(warnings) == len(warns) and all(w in m for w, m in zip(warns, warnings, strict=True)), warnings
    problem = make_problem(adapted.reference.attention, "random", SHAPE, 0, "bf16", {})
    out, lse = run_values(adapted.target, (problem.q, problem.k, problem.v), Launch(SHAPE, problem.captures))
    assert problem.lse is not None and problem.lse[0].unique().tolist() == [expected]
    assert lse[0].unique().tolist() == pytest.approx([expected]) and not out[0].any()
    assert problem.judge(out, lse).accepted


def test_a_kernel_that_takes_minus_infinity_for_granted_is_rejected() -> None:
    adapted = adapt_unchecked(joined_by_a_sink, "sm80", extra_inputs=lengths)
    problem = make_problem(adapted.reference.attention, "random", SHAPE, 0, "bf16", {})
    out, lse = run_values(adapted.target, (problem.q, problem.k, problem.v), Launch(SHAPE, problem.captures))
    assert not problem.judge(out, lse.masked_fill(torch.tensor([True, False])[:, None, None], -torch.inf)).accepted


def test_a_spec_with_another_lse_in_empty_rows_is_told_from_the_reference() -> None:
    attention = read_reference(plain, extra_inputs=lengths).attention
    problem = make_problem(attention, "random", SHAPE, 0, "bf16", {})
    wrong = replace(attention, spec=replace(attention.spec, lse=parse_expr("log(R1 * exp(m) + exp(-70))")))
    other = make_problem(replace(wrong, oracle=lambda *_: (problem.out, None)), "random", SHAPE, 0, "bf16", {})
    assert other.lse is not None and not problem.judge(problem.out, other.lse).accepted


FILLS = {-1e9: 1, torch.finfo(torch.float32).min: 1, -1e4: 0, -torch.inf: 0}


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("whole_rows", [False, True])
def test_fills_of_captured_masks_warn(fill: float, whole_rows: bool) -> None:
    def extra_inputs(shape, device):
        mask = torch.full((shape.Lq, shape.Lk), fill).triu(1 + shape.Lk - min(shape.Lq, shape.Lk))
        return {"bias": mask.index_fill(0, torch.tensor([3]), fill) if whole_rows else mask}

    def attention(q, k, v, bias):
        return ((q @ repeated(k, q).mT).float() + bias).softmax(-1).to(v.dtype) @ repeated(v, q)

    warnings = [w.message for w in read_reference(attention, extra_inputs=extra_inputs).attention.spec.warnings]
    assert sum("fills of -1e8 or less in `bias` are a mask" in w for w in warnings) == FILLS[fill]
    assert sum("a row that sees no key: the reference gives NaN" in w for w in warnings) == (
        whole_rows and fill == -torch.inf
    )
