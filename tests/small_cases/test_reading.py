"""Small cases from public trouble, 1 to 13: references that are easily read wrongly."""
# pyright: basic
# ruff: noqa: N812

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from cubridge.driver.adapt import adapt_unchecked
from cubridge.frontend.reference.load import Reference
from cubridge.frontend.reference.trace import trace
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import IntLit
from cubridge.ir.printer import print_expr
from tests.small_cases.tools import (
    adapted,
    attend,
    of_products,
    positions,
    products,
    random_inputs,
    refused,
    repeated,
    run,
    scores,
    spec,
    values,
    visible,
)  # fmt: skip

# ---- 1: a scale is what the text says --------------------------------------------------------------------------------

SCALES = {
    "divided by a reciprocal": (lambda s, d: s.div(1 / 8**0.5), 8**0.5),
    "none": (lambda s, d: s, 1.0),
    "by d": (lambda s, d: s / d, 1 / 64),
    "default": (lambda s, d: s / math.sqrt(d), 1 / 8),
    "a number": (lambda s, d: 0.3 * s, 0.3),
    "twice": (lambda s, d: s * d**-0.25 * d**-0.25, 1 / 8),
    "negative": (lambda s, d: s * -0.5, -0.5),
}


@pytest.mark.parametrize("name", SCALES)
def test_1_the_scale_of_the_text(name: str) -> None:
    scale, factor = SCALES[name]

    def attention(q, k, v):
        return attend(scale(products(q, k), q.shape[-1]).softmax(-1), q, v)

    q, k, v = random_inputs(1, 2, 1, 5, 70)
    found = values(attention, q, k, v)
    assert torch.allclose(found.score, (q.double() @ k.double().mT) * factor)
    assert run(attention, (q, k, v)).right


@pytest.mark.parametrize("scale", [None, 0.3])
def test_1_the_scale_of_sdpa(scale: float | None) -> None:
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)

    q, k, v = random_inputs(1, 2, 1, 5, 70)
    assert torch.allclose(values(attention, q, k, v).score, (q.double() @ k.double().mT) * (scale or 1 / 8))


# ---- 2: scale and bias in the order of the text ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("combine", "weights"),
    [
        (lambda s, bias: (s + bias) * 0.5, [0.378, 0.622]),
        (lambda s, bias: s * 0.5 + bias, [0.5, 0.5]),
        (lambda s, bias: bias + s * 0.5, [0.5, 0.5]),
        (lambda s, bias: (bias * 2 + s) / 2, [0.5, 0.5]),
    ],
)
def test_2_scale_and_bias(combine, weights: list[float]) -> None:
    def attention(q, k, v):
        j = torch.arange(k.shape[2])
        return attend(combine(products(q, k), torch.where(j == 0, 1.0, 0.0)).softmax(-1), q, v)

    out = values(attention, *of_products([[2.0, 4.0]])).out
    assert out.flatten().tolist() == pytest.approx(weights, abs=1e-3)


# ---- 3: a small finite fill is a bias ----------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [-5.0, 0.0, 7.0])
@pytest.mark.parametrize(("fill", "weights"), [(-1e4, [0, 1]), (-math.inf, [1, 0]), (-1e9, [1, 0])])
def test_3_fills(fill: float, weights: list[int], x: float) -> None:
    def attention(q, k, v):
        s = products(q, k).masked_fill(torch.arange(k.shape[2]) == 1, fill)
        return attend(s.softmax(-1), q, v)

    assert values(attention, *of_products([[-20000.0, x]])).out.flatten().tolist() == weights
    assert (print_expr(spec(attention).mask) == "True") == (fill == -1e4)


# ---- 4: a row with no key to see ---------------------------------------------------------------------------------------


def _empty_by_sdpa(q, k, v):
    i, j = positions(q, k)
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=j < i)


def _empty_by_infinity(q, k, v):
    i, j = positions(q, k)
    return attend(scores(q, k).masked_fill(j >= i, -torch.inf).softmax(-1), q, v)


def _empty_by_least_number(q, k, v):
    i, j = positions(q, k)
    return attend(scores(q, k).float().masked_fill(j >= i, torch.finfo(torch.float32).min).softmax(-1), q, v)


@pytest.mark.parametrize(
    ("reference", "warning"),
    [(_empty_by_sdpa, None), (_empty_by_infinity, "NaN"), (_empty_by_least_number, "mean of v")],
)
def test_4_a_row_with_no_key(reference, warning: str | None) -> None:
    warnings = [w.message for w in spec(reference).warnings]
    assert len(warnings) == (warning is not None)
    assert all(f"gives {'a ' if warning != 'NaN' else ''}{warning}" in w for w in warnings)
    result = run(reference, random_inputs(1, 2, 1, 70, 70))
    assert result.right
    assert not result.out[:, :, 0].any() and result.out[:, :, 1:].any(-1).all()
    assert (result.lse[:, :, 0] == -torch.inf).all()


def test_4_what_pytorch_gives_there() -> None:
    q, k, v = (t.float() for t in random_inputs(1, 2, 1, 3, 3))
    assert not _empty_by_sdpa(q, k, v)[:, :, 0].any()
    assert _empty_by_infinity(q, k, v)[:, :, 0].isnan().all()
    assert torch.allclose(_empty_by_least_number(q, k, v)[:, :, 0], v.mean(2))


# ---- 5, 6: windows and alignments --------------------------------------------------------------------------------------

WINDOWS = {
    "i - W < j <= i": (lambda i, j: (i - 3 < j) & (j <= i), [1, 2, 3, 3, 3, 3]),
    "i - W <= j <= i": (lambda i, j: (i - 3 <= j) & (j <= i), [1, 2, 3, 4, 4, 4]),
    "abs(i - j) < W": (lambda i, j: (i - j).abs() < 3, [3, 4, 5, 5, 4, 3]),
    "abs(i - j) <= W": (lambda i, j: (i - j).abs() <= 3, [4, 5, 6, 6, 5, 4]),
    "tril and triu": (lambda i, j: torch.ones(len(i), j.shape[1]).triu(-2).tril() > 0, [1, 2, 3, 3, 3, 3]),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_5_windows(name: str) -> None:
    keep, seen = WINDOWS[name]

    def attention(q, k, v):
        return attend(scores(q, k).masked_fill(~keep(*positions(q, k)), -torch.inf).softmax(-1), q, v)

    assert visible(attention, 6, 6) == seen


def _is_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def _top_left(q, k, v):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    return attend(scores(q, k).masked_fill(~keep, -torch.inf).softmax(-1), q, v)


def _bottom_right(q, k, v):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    return attend(scores(q, k).masked_fill(~keep, -torch.inf).softmax(-1), q, v)


def _bottom_right_by_rows(q, k, v):
    row = torch.arange(k.shape[2] - q.shape[2], k.shape[2])[:, None]
    return attend(scores(q, k).masked_fill(torch.arange(k.shape[2]) > row, -torch.inf).softmax(-1), q, v)


@pytest.mark.parametrize(
    ("reference", "wide", "tall"),
    [
        (_is_causal, [1, 2], [1, 2, 2, 2, 2]),
        (_top_left, [1, 2], [1, 2, 2, 2, 2]),
        (_bottom_right, [4, 5], [0, 0, 0, 1, 2]),
        (_bottom_right_by_rows, [4, 5], [0, 0, 0, 1, 2]),
    ],
)
def test_6_alignments(reference, wide: list[int], tall: list[int]) -> None:
    assert visible(reference, 2, 5) == wide
    assert visible(reference, 5, 2) == tall
    for lq, lk in ((70, 150), (150, 70)):
        assert run(reference, random_inputs(1, 2, 1, lq, lk)).right


# ---- 7: precedence -----------------------------------------------------------------------------------------------------

SLIPS = {
    "& before ==": lambda i, j: (i >= j) & i % 2 == 0,
    "| before ==": lambda i, j: (i >= j) | i % 2 == 1,
    "parentheses": lambda i, j: (i >= j) & (i % 2 == 0),
}


@pytest.mark.parametrize("name", SLIPS)
def test_7_precedence_is_pythons(name: str) -> None:
    def attention(q, k, v):
        return attend(scores(q, k).masked_fill(~SLIPS[name](*positions(q, k)), -torch.inf).softmax(-1), q, v)

    i, j = torch.arange(6)[:, None], torch.arange(5)
    assert visible(attention, 6, 5) == SLIPS[name](i, j).sum(-1).tolist()
    warned = any("binds tighter than a comparison" in w.message for w in spec(attention).warnings)
    assert warned == (name == "& before ==")


# ---- 8: numbers read from tensors --------------------------------------------------------------------------------------


def _item(q, k, v, doc):
    s = scores(q, k)
    if doc[0].item() == doc[1].item():
        s = s * 2
    return attend(s.softmax(-1), q, v)


def _truth(q, k, v, doc):
    s = scores(q, k)
    if (doc[0] == doc[1]).all():
        s = s * 2
    return attend(s.softmax(-1), q, v)


def _to_list(q, k, v, doc):
    s = scores(q, k) * sum(doc.tolist())
    return attend(s.softmax(-1), q, v)


@pytest.mark.parametrize(
    ("reference", "line"), [(_item, "doc[0].item()"), (_truth, ".all()"), (_to_list, "doc.tolist()")]
)
def test_8_data_decides_the_way(reference, line: str) -> None:
    found = refused(reference, lambda shape, device: {"doc": torch.arange(8) // 4})
    assert found.code == "CU477"
    number, _ = found.span.location
    assert line in found.span.file.line(number)
    assert found.help is not None and "torch.where" in found.help


# ---- 9: one element, in every shape -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "offset", [3, torch.tensor(3), torch.tensor([3]), torch.tensor([[3]]), torch.full((1, 1, 1, 1), 3)]
)
def test_9_one_element_of_any_shape(offset) -> None:
    def attention(q, k, v, offset):
        i, j = positions(q, k)
        return attend(scores(q, k).masked_fill(j > i + offset, -torch.inf).softmax(-1), q, v)

    def extra(shape, device):
        return {"offset": offset}

    found = spec(attention, extra)
    extents = (IntLit(1),) if isinstance(offset, torch.Tensor) else ()  # what a tensor holds is read on the device
    assert [(c.name, c.extents, c.dtype) for c in found.captures] == [("offset", extents, "i32")]
    result = run(attention, random_inputs(1, 2, 1, 70, 130), extra)
    assert result.out.shape == (1, 2, 70, 64) and result.right


# ---- 10: in-place operations -------------------------------------------------------------------------------------------


def _fill_scores(q, k, v):
    i, j = positions(q, k)
    s = scores(q, k)
    s.masked_fill_(j > i, -torch.inf)
    return attend(s.softmax(-1), q, v)


def _fill_view(q, k, v):
    i, j = positions(q, k)
    s = scores(q, k)
    s.view(-1, *s.shape[-2:]).masked_fill_(j > i, -torch.inf)
    return attend(s.softmax(-1), q, v)


def _fill_mask(q, k, v):
    i, j = positions(q, k)
    mask = torch.zeros(q.shape[2], k.shape[2])
    mask.masked_fill_(j > i, -torch.inf)
    return attend((scores(q, k) + mask).softmax(-1), q, v)


def _index_mask(q, k, v):
    i, j = positions(q, k)
    mask = torch.zeros(q.shape[2], k.shape[2])
    mask[j > i] = -torch.inf
    return attend((scores(q, k) + mask).softmax(-1), q, v)


def _operators(q, k, v):
    i, j = positions(q, k)
    s = products(q, k)
    s *= q.shape[-1] ** -0.5
    keep = j >= 0
    keep = keep.expand(q.shape[2], -1).clone()
    keep &= j <= i
    s += torch.where(keep, 0.0, -torch.inf)
    return attend(s.softmax(-1), q, v)


@pytest.mark.parametrize("reference", [_fill_scores, _fill_view, _fill_mask, _index_mask, _operators])
def test_10_in_place(reference) -> None:
    assert visible(reference, 3, 5) == [1, 2, 3]
    assert run(reference, random_inputs(1, 2, 1, 70, 130)).right


# ---- 11: a sink --------------------------------------------------------------------------------------------------------


def test_11_a_sink_is_a_denominator() -> None:
    def attention(q, k, v, z):
        i, j = positions(q, k)
        s = scores(q, k).masked_fill(j > i, -torch.inf)
        column = z[None, :, None, None].expand(s.shape[0], -1, s.shape[2], 1)
        return attend(torch.cat([s, column], -1).softmax(-1)[..., :-1], q, v)

    def extra(shape, device):
        return {"z": torch.linspace(-1.0, 3.0, shape.Hq)}

    found = spec(attention, extra)
    assert "z" not in print_expr(found.score)
    assert print_expr(found.finalize) == "acc / (R1 + exp(z[h] - m))"
    for emulated in (False, True):
        assert run(attention, random_inputs(1, 4, 2, 70, 130), extra, emulated=emulated).right


# ---- 12: caps ----------------------------------------------------------------------------------------------------------


def _capped(q, k, v, cap):
    return attend((cap * torch.tanh(scores(q, k) / cap)).softmax(-1), q, v)


def test_12_a_negative_cap_is_the_positive_one() -> None:
    inputs = random_inputs(1, 2, 1, 5, 70)
    positive, negative = (values(partial(_capped, cap=c), *inputs).score for c in (4.0, -4.0))
    assert torch.allclose(positive, negative)
    assert run(partial(_capped, cap=-4.0), inputs).right


@pytest.mark.parametrize("cap", [0.0, math.inf, -math.inf, math.nan])
def test_12_a_cap_that_leaves_nothing(cap: float) -> None:
    with pytest.raises(CuError) as caught:
        adapt_unchecked(partial(_capped, cap=cap))
    assert caught.value.diagnostics[0].code in ("CU474", "CU480", "CU486", "CU487"), str(caught.value)


# ---- 13: fp16 ----------------------------------------------------------------------------------------------------------


def test_13_fp16_cannot_hold_the_fill() -> None:
    def attention(q, k, v):
        i, j = positions(q, k)
        return attend(scores(q, k).masked_fill(j > i, -1e9).softmax(-1), q, v)

    def warnings(dtype: torch.dtype) -> list[str]:
        return [w.message for w in trace(Reference.of(attention), dtype=dtype).spec.warnings]

    assert any("overflows: fp16 cannot hold -1e+09" in w for w in warnings(torch.float16))
    assert warnings(torch.bfloat16) == []
    assert any("fp16 cannot hold" in w.message for w in adapted_in_fp16(attention))


def adapted_in_fp16(reference):
    return adapt_unchecked(reference, dtype="fp16").reference.attention.spec.warnings


def test_the_table_of_scales_tells_them_apart() -> None:
    def halved(q, k, v):
        return attend((0.5 * scores(q, k)).softmax(-1), q, v)

    q, k, v = random_inputs(1, 2, 1, 5, 70)
    result = run(halved, (q, k, v))
    wrong = adapted(_top_left)
    assert result.right and print_expr(wrong.reference.attention.spec.score) != print_expr(spec(halved).score)
