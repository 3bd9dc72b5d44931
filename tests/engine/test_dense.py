"""A spec's values where a careless evaluation overflows or takes a row for empty that is not."""

from __future__ import annotations

from dataclasses import replace

import torch

from cubridge.engine.dense import spec_values
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import RowReduction
from tests.support.specs import softmax_spec


def _inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 6, 8, generator=generator) for _ in range(3))
    return q, k, v


def test_a_sink_far_above_every_score() -> None:
    sink = replace(
        softmax_spec("s - 20000"),
        finalize=parse_expr("acc / (l + exp(3 - m))"),
        lse=parse_expr("m + log(l + exp(3 - m))"),
    )
    values = spec_values(sink, *_inputs(), {})
    assert values.lse is not None
    assert torch.equal(values.lse, torch.full((1, 2, 6), 3.0, dtype=torch.float64))
    assert torch.equal(values.out, torch.zeros_like(values.out))


def test_the_lse_of_a_mask_put_on_after_the_softmax_is_that_of_all_keys() -> None:
    weight = parse_expr("exp(x - m)")
    spec = replace(softmax_spec(mask="j < i"), rows=(RowReduction("l", "sum", parse_expr("True"), weight),))
    everywhere = spec_values(softmax_spec(mask="True"), *_inputs(), {})
    values = spec_values(spec, *_inputs(), {})
    assert values.lse is not None and everywhere.lse is not None
    assert torch.allclose(values.lse, everywhere.lse)
    assert values.empty[..., 0].all() and not values.empty[..., 1:].any()
    assert not values.out[:, :, 0].any()


def test_a_hidden_key_far_above_every_visible_one() -> None:
    weight = parse_expr("exp(x - m)")
    rows = (RowReduction("l", "sum", parse_expr("True"), weight),)
    spec = replace(softmax_spec("where(j == 5, s + 5000, s)", mask="j < 5"), rows=rows)
    q, k, v = _inputs()
    values = spec_values(spec, q, k, v, {})
    assert values.lse is not None
    assert torch.allclose(values.lse, (q.double() @ k.double().mT)[..., 5] + 5000)


def test_a_weight_whose_formula_overflows_has_a_sensitivity() -> None:
    """exp(-x) is infinite from x = -710 on, its reciprocal 0, and autograd's derivative of that inf / inf."""
    spec = replace(
        softmax_spec("s * 4000"), weight=parse_expr("1 / (1 + exp(-x))"), rows=(), finalize=parse_expr("acc"), lse=None
    )
    q, k, v = _inputs()
    values = spec_values(spec, q, k, v, {})
    stable = spec_values(replace(spec, weight=parse_expr("0.5 + 0.5 * tanh(x / 2)")), q, k, v, {})
    assert bool((values.score < -710).any())
    assert torch.allclose(values.sensitivity, stable.sensitivity, atol=1e-8)


def test_keys_of_the_lse_are_those_of_its_sums() -> None:
    everywhere = (RowReduction("l", "sum", parse_expr("True"), parse_expr("exp(x - m)")),)
    spec = softmax_spec(mask="j < i")
    assert torch.equal(spec_values(spec, *_inputs(), {}).lse_keys, spec_values(spec, *_inputs(), {}).visible)
    assert spec_values(replace(spec, rows=everywhere), *_inputs(), {}).lse_keys.all()


def test_a_row_that_sees_no_key() -> None:
    values = spec_values(softmax_spec(mask="j < i"), *_inputs(), {})
    assert values.lse is not None
    assert not values.out[:, :, 0].any()
    assert (values.lse[:, :, 0] == -torch.inf).all() and values.lse[:, :, 1:].isfinite().all()


def test_constants_beside_exponentials_of_scores_far_below_0() -> None:
    """m is no less than 0, else exp(-m) would be infinite."""
    difference = parse_expr("exp(x - m) - exp(-m)")
    rows = (RowReduction("l", "sum", parse_expr("True"), parse_expr("abs(exp(x - m) - exp(-m))")),)
    spec = replace(softmax_spec("s - 4000", mask="True"), weight=difference, rows=rows)
    values = spec_values(spec, *_inputs(), {})
    assert values.lse is not None
    assert torch.allclose(values.out, -_inputs()[2].double().mean(2, keepdim=True).expand(-1, -1, 6, -1))
    assert torch.allclose(values.lse, torch.full((1, 2, 6), 6.0, dtype=torch.float64).log())
    assert torch.allclose(values.exponentials.sum(-1), torch.ones(1, 2, 6, dtype=torch.float64))
    assert torch.allclose(values.lse_exponentials, torch.ones(1, 2, 6, dtype=torch.float64))
    assert torch.allclose(values.out_exponentials, values.out.abs())
