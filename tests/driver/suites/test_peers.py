"""Peers derived from a spec compute what the spec says, or there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cubridge.driver.suites.peers import Inputs, flex, flops, is_softmax, sdpa, visible
from cubridge.engine.dense import spec_values
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, Capture
from tests.support.specs import softmax_spec

SLOPES = Capture("slopes", "argument", (parse_expr("Hq"),), "f32")
SPECS = {
    "full": softmax_spec(mask="True"),
    "causal": softmax_spec(),
    "window": softmax_spec(mask="(j <= i) & (j > i - 9)"),
    "head mask": softmax_spec(mask="(j <= i) & (h + j > 2)"),
    "cap": softmax_spec(score="5.0 * tanh(s * D ** -0.5 / 5.0)"),
    "alibi": softmax_spec(score="s * D ** -0.5 + slopes[h] * f32(j - i)", captures=(SLOPES,)),
    "odd scale": softmax_spec(score="s * 0.3", mask="True"),
}


def inputs(lq: int = 40, lk: int = 40) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, h, n, 16, generator=generator) for h, n in ((4, lq), (2, lk), (2, lk)))
    return Inputs(q, k, v, {"slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625])})


def expected(spec: AttentionSpec, given: Inputs) -> torch.Tensor:
    return spec_values(spec, given.q, given.k, given.v, given.captures).out.float()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", SPECS)
def test_flex_attention_computes_the_spec(name: str) -> None:
    given = inputs()
    work = flex(SPECS[name], given, compiled_by=lambda function: function)
    assert work is not None
    torch.testing.assert_close(work(), expected(SPECS[name], given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["window", "head mask"])
def test_sdpa_with_a_dense_mask_computes_the_spec(name: str) -> None:
    given = inputs()
    work = sdpa(SPECS[name], given)
    assert list(work) == ["mask"]
    torch.testing.assert_close(work["mask"]().nan_to_num(0.0), expected(SPECS[name], given), rtol=1e-4, atol=1e-5)


def test_full_and_causal_go_by_flag_at_equal_lengths() -> None:
    for name in ("full", "causal", "odd scale"):
        assert list(sdpa(SPECS[name], inputs())) == ["cuDNN", "FA2"]
    assert list(sdpa(SPECS["causal"], inputs(lk=50))) == ["mask"]


@pytest.mark.parametrize("name", ["cap", "alibi"])
def test_sdpa_says_no_other_score(name: str) -> None:
    assert sdpa(SPECS[name], inputs()) == {}


def test_no_peer_says_another_normalizer_or_head_map() -> None:
    sink = replace(SPECS["causal"], finalize=parse_expr("acc / (l + exp(-m))"))
    relu = replace(
        SPECS["full"], weight=parse_expr("maximum(x, 0.0)"), rows=(), finalize=parse_expr("acc"), shift=False
    )
    for spec in (sink, relu):
        assert not is_softmax(spec) and sdpa(spec, inputs()) == {} and flex(spec, inputs()) is None
    tiled = replace(SPECS["full"], kv_head=parse_expr("h % Hk"))
    assert flex(tiled, inputs()) is None


def test_operations_are_counted_over_visible_elements() -> None:
    given = inputs()
    assert flops(SPECS["full"], given) == 4 * 16 * 2 * 4 * 40 * 40
    assert flops(SPECS["causal"], given) == 4 * 16 * 2 * 4 * 40 * 41 / 2
    assert flops(SPECS["head mask"], given) == 4 * 16 * 2 * int(visible(SPECS["head mask"], given).sum())
