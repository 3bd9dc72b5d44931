"""The bound holds for what a kernel computes, and only for that."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cubridge.engine.dense import SpecValues, spec_values
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import BoolLit
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import RowReduction, Shape
from cubridge.judge.bound import judge, output_bound, score_error
from cubridge.judge.inputs import KINDS, make_inputs
from tests.support.specs import softmax_spec

SHAPE = Shape(1, 4, 2, 60, 90, 64)
SCORES = {"plain": "s * D ** -0.5", "capped": "30.0 * tanh(s * D ** -0.5 / 30.0)"}


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, capped: bool, roughness: float = 0.0) -> torch.Tensor:
    """Causal attention as a kernel computes it: fp32, weights and output rounded to bf16."""
    k, v = k.repeat_interleave(2, 1).float(), v.repeat_interleave(2, 1).float()
    s = q.float() @ k.mT * 64**-0.5
    s = 30 * torch.tanh(s / 30) * (1 + roughness) if capped else s
    s = s.masked_fill(torch.ones(s.shape[-2:]).triu(1).bool(), -torch.inf)
    p = torch.exp(s - s.amax(-1, keepdim=True))
    return ((p.bfloat16().float() @ v) / p.sum(-1, keepdim=True)).bfloat16()


def _bound(score: str, kind: str) -> tuple[SpecValues, tuple[torch.Tensor, ...], torch.Tensor]:
    q, k, v = make_inputs(kind, SHAPE, torch.bfloat16, seed=1)
    values = spec_values(softmax_spec(score), q, k, v, {}, {"tanh": FUNCTIONS["tanh_approx"]})
    k_by_head, v_by_head = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    ds = score_error(values, q, k_by_head)
    return values, (q, k, v), output_bound(values, values.out, v_by_head, ds, "bf16")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", SCORES)
def test_a_faithful_kernel_is_accepted(score: str, kind: str) -> None:
    values, inputs, bound = _bound(SCORES[score], kind)
    judgement = judge(_attention(*inputs, capped=score == "capped"), values.out, bound)
    assert judgement.accepted
    assert kind == "constant V" or judgement.worst > 0.02  # the bound is not idle


def test_declared_errors_of_the_score_code_count() -> None:
    values, inputs, bound = _bound(SCORES["capped"], "large scores")
    assert judge(_attention(*inputs, capped=True, roughness=2.0**-12), values.out, bound).accepted
    assert not judge(_attention(*inputs, capped=True, roughness=2.0**-5), values.out, bound).accepted


def test_one_wrong_element_is_found_and_named() -> None:
    values, inputs, bound = _bound(SCORES["plain"], "random")
    got = _attention(*inputs, capped=False)
    got[0, 3, 17, 5] += 0.25
    judgement = judge(got, values.out, bound)
    assert not judgement.accepted
    assert judgement.where == (0, 3, 17, 5)
    assert max(judgement.rows) == judgement.rows[17] == judgement.worst
    assert len(judgement.rows) == got.shape[2] and sorted(judgement.rows)[-2] < 1


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_nan_and_infinity_are_never_accepted(poison: float) -> None:
    values, inputs, bound = _bound(SCORES["plain"], "random")
    got = _attention(*inputs, capped=False)
    got[0, 0, 0, 0] = poison
    assert not judge(got, values.out, bound).accepted


def test_what_fp32_loses_of_a_difference_of_exponentials() -> None:
    """Of scores near 0 more than of the scores themselves."""
    q, k, v = make_inputs("random", SHAPE, torch.bfloat16, seed=1)
    q = q * 2.0**-20
    difference = parse_expr("exp(x - m) - exp(-m)")
    total = RowReduction("l", "sum", BoolLit(True), parse_expr("abs(exp(x - m) - exp(-m))"))
    spec = replace(softmax_spec(SCORES["plain"], mask="True"), weight=difference, rows=(total,), lse=None)
    values = spec_values(spec, q, k, v, {})
    k_by_head, v_by_head = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    s = q.float() @ k_by_head.float().mT * 64**-0.5
    m = s.amax(-1, keepdim=True).clamp_min(0.0)
    p = torch.exp(s - m) - torch.exp(-m)
    got = p / p.abs().sum(-1, keepdim=True) @ v_by_head.float()
    none = torch.zeros_like
    without = replace(
        values, exponentials=none(values.exponentials), out_exponentials=none(values.out_exponentials)
    )  # fmt: skip
    for known in (values, without):
        bound = output_bound(known, values.out, v_by_head, score_error(known, q, k_by_head), "bf16")
        assert judge(got, values.out, bound).accepted is (known is values)
