"""Small cases from public trouble, 14 to 20: numbers that kernels commonly get wrong."""
# pyright: basic

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from cubridge.ir.spec import Shape
from cubridge.judge.bound import judge
from cubridge.judge.checker import Checker
from cubridge.judge.inputs import KINDS
from cubridge.judge.plan import Case
from cubridge.judge.problem import Problem
from tests.small_cases.tools import (
    Inputs,
    attend,
    each_on,
    positions,
    products,
    random_inputs,
    run,
    scores,
    traced,
)  # fmt: skip

EMULATED = pytest.mark.parametrize("emulated", [False, True], ids=["value engine", "emulator"])
EACH = each_on("sm80")


def softmax(q, k, v):
    return attend(scores(q, k).softmax(-1), q, v)


def with_lse(q, k, v):
    s = scores(q, k)
    return attend(s.softmax(-1), q, v), s.logsumexp(-1)


def raw_causal(q, k, v):
    i, j = positions(q, k)
    return attend(products(q, k).masked_fill(j > i + k.shape[2] - q.shape[2], -torch.inf).softmax(-1), q, v)


def shifted(inputs: Inputs, by: float) -> Inputs:
    """The same with every raw product about `by`: one coordinate of q and k is given up for it."""
    q, k, v = (t.clone() for t in inputs)
    q[..., 0], k[..., 0] = abs(by) ** 0.5, abs(by) ** 0.5 * (1 if by > 0 else -1)
    return q, k, v


@EACH
@EMULATED
def test_14_very_negative_logits_are_a_true_softmax(kernel: str, emulated: bool) -> None:
    """A sentinel of -1e4 or -6e4 instead of -inf would give zeros."""
    inputs = shifted(random_inputs(1, 2, 1, 70, 130), -57_600.0)
    raw = inputs[0].double() @ inputs[1].double().mT
    assert raw.max() < -5.5e4 and raw.min() > -6.1e4
    result = run(raw_causal, inputs, kernel=kernel, emulated=emulated)
    assert result.right
    assert result.out.any(-1).all()


def _hidden_first(q, k, v):
    """Keys of the first tile, from either end, are hidden from all rows but the last."""
    i, j = positions(q, k)
    middle = (j >= 130) & (j < k.shape[2] - 130)
    keep = middle | (i == q.shape[2] - 1)
    return attend(products(q, k).masked_fill(~keep, -torch.inf).softmax(-1), q, v)


@EACH
@EMULATED
def test_15_rows_sum_to_one_after_a_hidden_first_tile(kernel: str, emulated: bool) -> None:
    q, k, _ = shifted(random_inputs(1, 7, 1, 88, 448), -60.0)
    result = run(
        _hidden_first, (0.2 * q, 5.0 * k, torch.ones(1, 1, 448, 64).bfloat16()), kernel=kernel, emulated=emulated
    )
    assert result.right
    assert (result.out.float() - 1.0).abs().max() <= 2**-7


NEGATIVE = {
    "a constant": (lambda s, t: s * -0.125, None),
    "learned": (lambda s, t: s * t, lambda shape, device: {"t": torch.tensor(-0.3)}),
    "learned per head": (
        lambda s, t: s * t[:, None, None],
        lambda shape, device: {"t": torch.linspace(-0.5, 0.3, shape.Hq)},
    ),
    "a quotient": (lambda s, t: s / -8.0 + 1.0, None),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_16_the_maximum_is_taken_after_a_negative_scale(name: str) -> None:
    scaled, extra = NEGATIVE[name]

    def attention(q, k, v, t=1.0):
        i, j = positions(q, k)
        return attend(scaled(products(q, k), t).masked_fill(j > i, -torch.inf).softmax(-1), q, v)

    q, k, v = random_inputs(1, 4, 2, 150, 200)
    assert run(attention, (6 * q, 6 * k, v), extra).right
    if name == "learned":
        assert run(attention, (6 * q, 6 * k, v), extra, emulated=True).right


@EACH
@EMULATED
def test_17_lse_is_in_natural_units_and_compared(kernel: str, emulated: bool) -> None:
    inputs = random_inputs(2, 2, 1, 70, 130)
    result = run(with_lse, inputs, kernel=kernel, emulated=emulated)
    assert result.lse is not None and result.right
    want = (inputs[0].double() @ inputs[1].double().mT / 8).logsumexp(-1)
    assert torch.allclose(result.lse.double(), want, atol=1e-5)
    for wrong in (result.lse * 1.4427, result.lse + 0.01, torch.full_like(result.lse, torch.nan)):
        assert not result.problem.judge(result.out, wrong).accepted


@EACH
@EMULATED
def test_18_logits_beyond_the_accurate_range_do_not_pass(kernel: str, emulated: bool) -> None:
    """q = k = 133120: an exponent that is not exactly 0 overflows, as on an H200; the emulator's sums happen to be exact."""
    q, k, v = random_inputs(1, 2, 1, 70, 130)
    result = run(
        softmax, (torch.full_like(q, 133120.0), torch.full_like(k, 133120.0), v), kernel=kernel, emulated=emulated
    )
    mean = v.double().mean(2, keepdim=True).expand(1, 2, 70, 64)
    assert torch.allclose(result.out.double(), mean, atol=2**-8)
    assert result.problem.judge(result.out, result.lse).accepted and not result.right


@dataclass(frozen=True, slots=True)
class Right:
    """A runner that gives the oracle itself."""

    stage: str = "oracle"

    def run(self, problem: Problem, lse: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        return problem.out, problem.lse


@pytest.mark.parametrize(("size", "accurate"), [(0.3, True), (4.0, True), (100.0, True), (3e4, False), (1e20, False)])
def test_18_the_check_says_so(size: float, accurate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "random", lambda q, k, v: (size * q, size * k, v))
    checker = Checker(traced(softmax).attention, "bf16", {})
    (result,) = checker.run(Right(), [Case("random", Shape(1, 2, 1, 70, 130, 64))])
    assert result.accepted == accurate
    assert accurate or "scores too large to compare" in result.detail


@EACH
@EMULATED
def test_19_pads_never_enter(kernel: str, emulated: bool) -> None:
    """All scores near -100: a pad of zeros would take all the weight. The engines fill what lies past the end with NaN."""
    inputs = shifted(random_inputs(1, 2, 1, 192, 192), -800.0)
    assert (inputs[0].double() @ inputs[1].double().mT / 8).max() < -90
    assert run(softmax, inputs, kernel=kernel, emulated=emulated).right


@EACH
@EMULATED
@pytest.mark.parametrize("lk", [16, 65])
def test_20_keys_past_the_end_stay_out_of_the_denominator(kernel: str, emulated: bool, lk: int) -> None:
    q, k, _ = random_inputs(1, 1, 1, 3, lk)
    v = torch.eye(lk, 64).bfloat16()[None, None]
    out = run(softmax, (torch.zeros_like(q), k, v), kernel=kernel, emulated=emulated).out
    want = (v.float().sum(2, keepdim=True) / lk).bfloat16()
    assert torch.equal(out, want.expand_as(out))


def test_20_also_where_the_weight_of_zero_is_not_zero() -> None:
    def attention(q, k, v):
        return attend(torch.sigmoid(scores(q, k)), q, v)

    q, k, v = random_inputs(1, 1, 1, 3, 65)
    result = run(attention, (torch.zeros_like(q), k, torch.ones_like(v)))
    assert torch.equal(result.out, torch.full_like(result.out, 32.5))


def test_the_oracle_is_the_reference() -> None:
    """What the cases above compare with, once against the function itself."""
    q, k, v = shifted(random_inputs(1, 2, 1, 70, 130), -57_600.0)
    attention = traced(raw_causal).attention
    out, _ = attention.oracle(q, k, v, {})
    own = raw_causal(q.double(), k.double(), v.double())
    assert judge(own, out, torch.full_like(out, 1e-9)).accepted


def _plus_one(q, k, v):
    s = scores(q, k).float()
    e = (s - s.amax(-1, keepdim=True)).exp()
    return attend(e / (e.sum(-1, keepdim=True) + 1.0), q, v)


def _at_least_three(q, k, v):
    s = scores(q, k).float()
    e = (s - s.amax(-1, keepdim=True)).exp()
    return attend(e / e.sum(-1, keepdim=True).clamp(min=3.0), q, v)


@EACH
@EMULATED
@pytest.mark.parametrize("by", [-2400.0, 2400.0])
@pytest.mark.parametrize("reference", [_plus_one, _at_least_three])
def test_a_number_beside_the_sum_is_relative_to_the_maximum(reference, by: float, kernel: str, emulated: bool) -> None:
    """exp(-300) and exp(300) are beyond fp32."""
    result = run(reference, shifted(random_inputs(1, 2, 1, 70, 130), by), kernel=kernel, emulated=emulated)
    assert result.right
    assert result.out.float().abs().amax(-1).min() > 0.001
