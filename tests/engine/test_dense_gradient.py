"""What is derived, evaluated, against PyTorch's own gradients of the same spec: drawn specs, rows without keys, far scores."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.derive.gradient import derive
from cubridge.engine.autograd import autograd_values
from cubridge.engine.dense_gradient import Gradients, gradient_values
from cubridge.ir.nodes import BoolLit, Expr
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, RowReduction, Shape
from tests.passes.composed import DATA, NORMALIZERS, SCORES, composed, values_of
from tests.passes.specs import elementwise, normalised, softmax
from tests.passes.strategies import masks
from tests.support.specs import softmax_spec

Captures = dict[str, torch.Tensor | float]


def inputs(shape: Shape, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """q, k, v, dout, dlse."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk), (shape.Hq, shape.Lq)]
    q, k, v, dout = (torch.randn(shape.B, *n, shape.D, generator=generator) for n in sizes)
    return q, k, v, dout, torch.randn(shape.B, shape.Hq, shape.Lq, generator=generator)


def both(
    spec: AttentionSpec, given: tuple[torch.Tensor, ...], captures: Captures | None = None
) -> tuple[Gradients, Gradients]:
    """Derived, and by PyTorch."""
    q, k, v, dout, dlse = given
    arguments = (q, k, v, captures or {}, dout, dlse)
    return gradient_values(derive(spec), *arguments), autograd_values(spec, *arguments)


def assert_same(pair: tuple[Gradients, Gradients]) -> None:
    for name in ("dq", "dk", "dv"):
        found, expected = (getattr(g, name) for g in pair)
        assert not expected.isnan().any(), name
        assert torch.allclose(found, expected, rtol=1e-8, atol=1e-9 * (1 + float(expected.abs().max()))), name


@given(st.sampled_from(SCORES), masks, st.sampled_from(DATA), st.sampled_from(sorted(NORMALIZERS)), st.integers(0, 99))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_random_spec(score: str, mask: Expr, data: str | None, name: str, seed: int) -> None:
    shape = Shape(2, 4, 2, 17 + seed % 9, 11 + seed % 16, 8)
    assert_same(both(composed(score, mask, data, NORMALIZERS[name]), inputs(shape, seed), values_of(shape)))


SHAPE = Shape(1, 4, 2, 9, 7, 8)
SPECS = {
    "rows without keys": softmax_spec(mask="j < i - 3"),
    "rows without keys, of ReLU": elementwise("maximum(x, 0)", "acc / Lk", mask="j < i - 3"),
    "rows without keys, of a sink": normalised("exp(x - m)", {"l": "sum exp(x - m)"}, "acc / (l + exp(0.5 - m))", mask="j < i - 3"),
    "rows without keys, divided by their count": normalised("x", {"n": "sum 1"}, "acc / n", mask="j < i - 3"),
    "no key at all": softmax_spec(mask="j < 0"),
    "a bias of -inf": softmax_spec("s * D ** -0.5 + where(j == i, -inf, 0.0)", mask="True"),
    "rows that a bias of -inf empties": softmax_spec("s + where(i < 4, -inf, 0.0)", mask="True"),
    "hidden scores far above": softmax_spec("where(j == 5, s + 5000, s)", mask="j < 5"),
    "a sink far above": normalised("exp(x - m)", {"l": "sum exp(x - m)"}, "acc / (l + exp(900 - m))"),
    "scores far below": softmax_spec("s - 20000", mask="True"),
    "a sigmoid far below": elementwise("1 / (1 + exp(-x))", score="s - 2000"),
    "one key": softmax_spec(mask="j == 2"),
    "nothing to keep": elementwise("x * x * x", "acc / D"),
    "the output not linear": normalised("exp(x - m)", {"l": "sum exp(x - m)"}, "tanh(acc / l) * (1 + h)"),
    "the sum and its square": normalised("maximum(x, 0)", {"l": "sum maximum(x, 0)"}, "acc / sqrt(1 + l * l)"),
    "two sums": normalised("exp(x - m)", {"l": "sum exp(x - m)", "n": "sum exp(2 * x - 2 * m)"}, "acc / sqrt(n)"),
    "a sum that is negative": normalised("exp(x - m)", {"l": "sum -2 * exp(x - m)"}, "acc / l"),
    "a sum of both signs": normalised("exp(x - m)", {"l": "sum x * exp(x - m)"}, "acc / l"),
    "a score kept": elementwise("x / (1 + exp(-x))", score="20 * tanh(s / 20)"),
    "a slope kept": elementwise("1 / (1 + exp(-x))", score="s * abs(s)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_spec(name: str) -> None:
    pair = both(SPECS[name], inputs(SHAPE))
    assert_same(pair)
    if "no key" in name:
        assert not any(t.any() for t in (pair[0].dq, pair[0].dk, pair[0].dv))


def test_a_mask_after_the_softmax_and_an_lse_of_another_base() -> None:
    spec = softmax_spec(mask="j < i")
    everywhere = tuple(replace(r, over=BoolLit(True)) for r in spec.rows)
    assert_same(both(replace(spec, rows=everywhere, lse=parse_expr("(m + log(l)) * LOG2E")), inputs(SHAPE)))


def test_keys_of_a_sum_that_the_weights_do_not_see() -> None:
    weight = parse_expr("exp(x - m)")
    rows = (RowReduction("l", "sum", parse_expr("j != i"), weight),)
    assert_same(both(replace(softmax("s * D ** -0.5", "j <= i"), rows=rows), inputs(SHAPE)))


def test_query_heads_that_read_key_heads_in_another_order() -> None:
    assert_same(both(replace(softmax_spec(), kv_head=parse_expr("(h + 1) % Hk")), inputs(SHAPE)))


def test_no_dlse_is_one_of_zeros() -> None:
    q, k, v, dout, dlse = inputs(SHAPE)
    gradient = derive(softmax_spec())
    without = gradient_values(gradient, q, k, v, {}, dout)
    assert torch.equal(without.dk, gradient_values(gradient, q, k, v, {}, dout, 0.0 * dlse).dk)


def test_what_is_saved_is_enough() -> None:
    """Whatever the forward pass knows besides is taken away before the backward pass is evaluated."""
    from cubridge.engine import dense_gradient as dense

    q, k, v, dout, dlse = inputs(SHAPE)
    for name, spec in SPECS.items():
        gradient = derive(spec)
        saved = dense.forward(gradient, q, k, v, {})
        handed_on = {*gradient.saved, "s", "x"}
        rest = {"acc", "m", "out", "lse", *(r.name for r in spec.rows)} - handed_on
        saved.scope.update({n: torch.full((1, 1, 1, 1), torch.nan).double() for n in rest})
        rows = dense.row_values(dense.row_terms(saved, saved.scope, dout, dlse))
        found = dense.sums(saved, rows, dense.pair_values(saved, dense.with_rows(saved, rows)))
        assert torch.equal(found.dq, gradient_values(gradient, q, k, v, {}, dout, dlse).dq), name
