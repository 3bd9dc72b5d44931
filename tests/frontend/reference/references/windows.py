"""Sliding windows, global tokens, sinks of a window, dilation."""
# pyright: basic
# ruff: noqa: N812

import math
from functools import partial

import torch
import torch.nn.functional as F

from tests.frontend.reference.references.helpers import expanded, plain_scores, repeated
from tests.frontend.reference.table import accepts

NAN = ("a row that sees no key: the reference gives NaN",)


@accepts(mask="abs(i - j) < 9", score="s * 0.125", warns=NAN)
def window_by_assignment(q, k, v):
    distance = torch.arange(q.size(-2)).unsqueeze(-1) - torch.arange(k.size(-2))
    s = torch.matmul(q, expanded(k, q).transpose(2, 3)).div(8)
    s = s.masked_fill_(distance.abs() >= 9, -math.inf)
    return s.softmax(-1).matmul(expanded(v, q))


@accepts(mask="abs(i - j) < 10", warns=("a row that sees no key: the reference gives a mean",))
def window_band_of_triangles(q, k, v):
    one = torch.ones(q.size(2), k.size(2))
    band = torch.tril(torch.triu(one, -9), 9)
    s = (q * q.size(3) ** -0.5) @ repeated(k, q).transpose(2, 3)
    return s.masked_fill(band == 0, -1e9).softmax(-1) @ repeated(v, q)


@accepts(mask="(j <= i) & (j >= i - 9)", warns=("a row that sees no key: the reference gives a mean",))
def window_difference_of_triangles(q, k, v):
    one = torch.ones(q.shape[2], k.shape[2])
    band = one.tril() - one.tril(-10)
    return (plain_scores(q, k) + (1 - band) * -1e9).softmax(-1) @ repeated(v, q)


@accepts(mask="(j <= i + 3) & (j >= i - 4)", warns=NAN)
def window_exclusive_or(q, k, v):
    one = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    keep = torch.logical_xor(one.tril(3), one.tril(-5))
    return plain_scores(q, k).masked_fill(keep.logical_not(), -math.inf).softmax(-1) @ repeated(v, q)


@accepts(mask="(j <= i + Lk - Lq) & (j >= i + Lk - Lq - 6)")
def window_causal_bottom_right(q, k, v):
    offset = k.shape[-2] - q.shape[-2]
    i, j = torch.arange(q.shape[-2])[:, None] + offset, torch.arange(k.shape[-2])[None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & (j > i - 7), enable_gqa=True)


@accepts(mask="(j <= i + Lk - Lq + 3) & (j >= i + Lk - Lq - 6)")
def window_local_with_zeroed_rows(q, k, v):
    left, right = 6, 3
    rows, columns = torch.arange(q.shape[2]).reshape(-1, 1), torch.arange(k.shape[2])
    middle = rows + k.shape[2] - q.shape[2]
    outside = torch.logical_or(
        columns > torch.minimum(middle + right, torch.full_like(columns, k.shape[2])), columns < middle - left
    )
    p = plain_scores(q.float(), k.float()).masked_fill(outside, float("-inf")).softmax(-1).to(v.dtype)
    p = p.masked_fill(torch.all(outside, dim=-1, keepdim=True), 0.0)
    return p @ repeated(v, q)


@accepts(mask="(i < 5) | (j < 5) | (abs(i - j) < 8)")
def global_tokens_as_float_bias(q, k, v):
    i, j = torch.arange(q.shape[2]).reshape(-1, 1), torch.arange(k.shape[2]).reshape(1, -1)
    bias = torch.where((j < 5) | (i < 5) | ((i - j).abs() < 8), 0.0, float("-inf")).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None, None], enable_gqa=True)


@accepts(mask="(i < 5) | (j < 5) | (abs(i - j) < 8)", requires=("Lq >= 5", "Lk >= 5"))
def global_tokens_by_slices(q, k, v):
    keep = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None]).abs().lt(8)
    keep[:5] = True
    keep[:, :5] = True
    return plain_scores(q, k).masked_fill_(~keep, -torch.inf).softmax(-1) @ repeated(v, q)


@accepts(mask="(j <= i) & ((j < 4) | (j >= i - 15))")
def sink_tokens_and_window(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    near = (i - j) < 16
    keep = (j <= i).logical_and(near.logical_or(j < 4))
    return plain_scores(q, k).where(keep, torch.tensor(-torch.inf, dtype=q.dtype)).softmax(-1) @ repeated(v, q)


@accepts(mask="(abs(i - j) < 13) & ((i - j) % 3 == 0)", warns=("a row that sees no key: the reference gives a mean",))
def dilated_window(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
    keep = torch.remainder(i - j, 3).eq(0) & i.sub(j).abs().le(12)
    return (plain_scores(q, k) + torch.where(keep, 0.0, -1e9)).softmax(-1) @ repeated(v, q)


@accepts(mask="(abs(i - j) < 3) | ((i - j) % 4 == 0)")
def residues_or_near(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
    keep = ((i - j) % 4 == 0) | ((i - j).abs() <= 2)
    return plain_scores(q, k).masked_fill(~keep, -1e30).softmax(-1) @ repeated(v, q)


@accepts(mask="(j > i) | (j % 2 == 0)", warns=("binds tighter",))
def precedence_slip(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    keep = (i >= j) & j % 2 == 0
    return plain_scores(q, k).masked_fill(~keep, -math.inf).softmax(-1) @ repeated(v, q)


def _window(q, k, v, width):
    near = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs() <= width
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=near)


accepts(mask="abs(i - j) < 7")(partial(_window, width=6))


@accepts(
    mask="(j <= i) & (j > i - window)",
    extra=lambda shape, device: {"window": 11},
    captures=("window[] argument i32",),
    warns=NAN,
)
def window_given_as_a_number(q, k, v, window):
    lag = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    return plain_scores(q, k).masked_fill((lag < 0) | (lag >= window), -math.inf).softmax(-1) @ repeated(v, q)


@accepts(
    mask="abs(i - j) <= reach[h]",
    extra=lambda shape, device: {"reach": torch.arange(shape.Hq) % 5 + 40},
    captures=("reach[Hq] argument i32",),
)
def window_per_head(q, k, v, reach):
    lag = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs()
    keep = lag[None] <= reach[:, None, None]
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=keep)


@accepts(mask="j // i32(Lk ** 0.5) <= i // i32(Lk ** 0.5)")
def blocks_of_square_root(q, k, v):
    width = int(math.sqrt(k.shape[2]))
    keep = (torch.arange(q.shape[2])[:, None] // width) >= (torch.arange(k.shape[2]) // width)
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=keep)


@accepts(mask="j <= i", warns=("positions in bfloat16",))
def causal_of_positions_in_half_precision(q, k, v):
    i, j = torch.arange(q.shape[2]).to(q.dtype)[:, None], torch.arange(k.shape[2])[None, :]
    return plain_scores(q, k).masked_fill(j > i, float("-inf")).softmax(-1) @ repeated(v, q)
