"""Captured tensors with every kind of indexing: per head, key, row, batch, relative position, and computed ones."""
# pyright: basic
# ruff: noqa: N812

import math

import torch
import torch.nn.functional as F

from tests.frontend.reference.references.helpers import plain_scores, repeated
from tests.frontend.reference.table import SCALE, accepts

DOCUMENTS = {"extra": lambda shape, device: {"doc": (torch.arange(max(shape.Lq, shape.Lk)) // 13).repeat(shape.B, 1)},
             "captures": ("doc[B, maximum(Lq, Lk)] argument i32",)}  # fmt: skip
SAME_DOCUMENT = "doc[b, j] == doc[b, i]"


SHORT = torch.linspace(-1, 1, 99)
SQUARE = torch.linspace(-1, 1, 64 * 64).view(64, 64)


@accepts(score=f"{SCALE} + SHORT[j]", captures=("SHORT[99] state f32",), requires=("Lk <= 99",))
def table_shorter_than_most_lengths(q, k, v):
    return (plain_scores(q, k).float() + SHORT[torch.arange(k.shape[2])]).softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(
    score=f"{SCALE} + SHORT[abs(i - j // 3)]", captures=("SHORT[99] state f32",), requires=("Lk <= 297", "Lq <= 99")
)
def table_of_distances(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = plain_scores(q, k).float() + SHORT[(j // 3 - i).abs()]
    return s.softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(score=f"{SCALE} + SQUARE[i, j]", captures=("SQUARE[64, 64] state f32",), requires=("Lq <= 64", "Lk <= 64"))
def square_that_is_cut(q, k, v):
    s = plain_scores(q, k).float() + SQUARE[: q.shape[2], : k.shape[2]]
    return s.softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(mask=SAME_DOCUMENT, **DOCUMENTS)
def documents(q, k, v, doc):
    keep = doc[:, : q.shape[2], None] == doc[:, None, : k.shape[2]]
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=keep[:, None])


@accepts(mask=f"(j <= i) & ({SAME_DOCUMENT})", warns=("gives a mean",), **DOCUMENTS)
def documents_causal(q, k, v, doc):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    keep = (doc[:, : q.shape[2], None] == doc[:, None, : k.shape[2]]) & (j <= i)
    return plain_scores(q, k).masked_fill(~keep[:, None], -1e9).softmax(-1).nan_to_num() @ repeated(v, q)


@accepts(
    mask="(j <= i) & (cumsum[b, j] == cumsum[b, i])",
    extra=lambda shape, device: {"starts": (torch.arange(shape.Lk) % 11 == 0).expand(shape.B, -1).contiguous()},
    captures=("cumsum[B, Lk] computed i32",),
    requires=("Lk == Lq",),
)
def documents_by_cumulative_sum(q, k, v, starts):
    doc = torch.cumsum(starts.int(), dim=-1)
    keep = doc[:, None, :, None] == doc[:, None, None, :]
    keep = keep.logical_and(torch.arange(q.shape[2])[:, None].ge(torch.arange(k.shape[2])))
    return (plain_scores(q, k) + torch.log(keep.float()).to(q.dtype)).softmax(-1) @ repeated(v, q)


@accepts(
    mask="bucketize[j] == bucketize_2[i]",
    extra=lambda shape, device: {"ends": torch.tensor([10, 25, 41, 200])},
    captures=("bucketize[Lk] computed i32", "bucketize_2[Lq] computed i32"),
    warns=("gives a mean",),
)
def documents_by_bucketize(q, k, v, ends):
    of_key = torch.bucketize(torch.arange(k.shape[2]), ends, right=True)
    of_row = torch.bucketize(torch.arange(q.shape[2]), ends, right=True)
    s = plain_scores(q, k) + (1.0 - (of_row[:, None] == of_key).to(q.dtype)) * torch.finfo(q.dtype).min
    return torch.softmax(s, -1) @ repeated(v, q)


@accepts(
    mask="(j <= i) & ((answer[b, j] == 0) | (answer[b, j] == answer[b, i]))",
    extra=lambda shape, device: {"answer": (torch.arange(shape.Lk) // 9 % 3).repeat(shape.B, 1)},
    captures=("answer[B, Lk] argument i32",),
    requires=("Lk == Lq",),
)
def share_question(q, k, v, answer):
    same = answer[:, :, None] == answer[:, None, :]
    keep = (same | (answer == 0)[:, None, :]) & torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep.unsqueeze(1), enable_gqa=True)


@accepts(
    mask="j < lengths[b]",
    extra=lambda shape, device: {"lengths": torch.arange(shape.B) * 3 + 7},
    captures=("lengths[B] argument i32",),
    warns=("sees no key",),
)
def key_padding_by_length(q, k, v, lengths):
    pad = torch.arange(k.shape[2])[None] >= lengths[:, None]
    s = torch.einsum("b h i d, b h j d -> b h i j", q, repeated(k, q)).mul_(q.shape[-1] ** -0.5)
    s.masked_fill_(pad[:, None, None], torch.finfo(s.dtype).min)
    return torch.softmax(s, -1, dtype=torch.float32).type_as(q) @ repeated(v, q)


@accepts(
    mask="(j <= i) & ~pad[b, j]",
    extra=lambda shape, device: {"pad": (torch.arange(shape.Lk) >= shape.Lk - 5).expand(shape.B, -1)},
    captures=("pad[B, Lk] argument bool",),
)
def key_padding_mask(q, k, v, pad):
    future = torch.triu(torch.ones(q.size(-2), k.size(-2), dtype=torch.bool), diagonal=1)
    return F.scaled_dot_product_attention(
        q, repeated(k, q), repeated(v, q), attn_mask=~(pad[:, None, None, :] | future)
    )


@accepts(
    mask="positions_k[j] <= positions_q[i]",
    extra=lambda shape, device: {"positions_q": torch.arange(shape.Lq) + 5, "positions_k": torch.arange(shape.Lk)},
    captures=("positions_k[Lk] argument i32", "positions_q[Lq] argument i32"),
    warns=("sees no key",),
)
def positions_given(q, k, v, positions_q, positions_k):
    keep = positions_q[:, None] >= positions_k[None, :]
    return torch.where(keep, plain_scores(q, k), torch.finfo(q.dtype).min).softmax(-1) @ repeated(v, q)


@accepts(
    mask="j <= i + offset[0]",
    extra=lambda shape, device: {"offset": torch.tensor([4])},
    captures=("offset[1] argument i32",),
)
def offset_of_one_element(q, k, v, offset):
    keep = torch.arange(q.shape[2])[:, None] + offset >= torch.arange(k.shape[2])
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=keep)


@accepts(
    score=f"{SCALE} + bias[h, i, j]",
    extra=lambda shape, device: {
        "bias": torch.sin(torch.arange(shape.Hq * shape.Lq * shape.Lk) / 7.0).view(shape.Hq, shape.Lq, shape.Lk)
    },
    captures=("bias[Hq, Lq, Lk] argument f32",),
)
def bias_full(q, k, v, bias):
    return (plain_scores(q, k) + bias.to(q.dtype)).softmax(-1) @ repeated(v, q)


@accepts(
    score=f"{SCALE} + mask[b, i, j]",
    extra=lambda shape, device: {"mask": torch.full((shape.B, 1, shape.Lq, shape.Lk), -math.inf).triu(1)},
    captures=("mask[B, Lq, Lk] argument f32",),
)
def bias_that_holds_minus_infinity(q, k, v, mask):
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), attn_mask=mask.to(q.dtype))


TABLE = {"extra": lambda shape, device: {"table": torch.cos(torch.arange(shape.Hq * 33) / 3.0).view(shape.Hq, 33)},
         "captures": ("by_distance[Hq, Lk + Lq + 255] computed f32",)}  # fmt: skip


@accepts(score=f"{SCALE} + by_distance[h, i - j + Lk + 127]", **TABLE)
def table_of_clamped_distance(q, k, v, table):
    index = torch.clamp(torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None], -16, 16) + 16
    return torch.softmax(plain_scores(q, k) + table[:, index].to(q.dtype), -1) @ repeated(v, q)


@accepts(
    score=f"{SCALE} + by_distance[i - j + Lk + 127]",
    extra=lambda shape, device: {"table": torch.sin(torch.arange(2.0 * max(shape.Lq, shape.Lk)))},
    captures=("by_distance[2 * Lk + 255] computed f32",),
    requires=("Lk == Lq",),
)
def table_of_distance_by_embedding(q, k, v, table):
    n = k.shape[2]
    index = torch.arange(q.shape[2])[:, None] - torch.arange(n)[None] + n
    bias = F.embedding(index, table[:, None]).squeeze(-1)
    return (plain_scores(q, k) + bias.to(q.dtype) + torch.zeros(n, n, dtype=q.dtype)).softmax(-1) @ repeated(v, q)


@accepts(
    score=f"{SCALE} + row_bias[i] * j + key_bias[h // (Hq // Hk), j]",
    extra=lambda shape, device: {"key_bias": torch.rand(shape.Hk, shape.Lk), "row_bias": torch.rand(shape.Lq) / 50},
    captures=("key_bias[Hk, Lk] argument f32", "row_bias[Lq] argument f32"),
)
def bias_per_key_head_and_per_row(q, k, v, key_bias, row_bias):
    s = plain_scores(q, k) + key_bias.repeat_interleave(q.shape[1] // k.shape[1], 0)[:, None].to(q.dtype)
    s = s + (row_bias[:, None] * torch.arange(k.shape[2])).to(q.dtype)
    return s.softmax(-1) @ repeated(v, q)


@accepts(
    score="30 * tanh(s / 240 + slope[h] * (j - i) / 30)",
    mask="(j <= i) & (doc[b, j] == doc[b, i])",
    extra=lambda shape, device: {"slope": torch.rand(shape.Hq), **DOCUMENTS["extra"](shape, device)},
    captures=("doc[B, maximum(Lq, Lk)] argument i32", "slope[Hq] argument f32"),
)
def alibi_soft_cap_documents(q, k, v, slope, doc):
    Lq, Lk = q.shape[2], k.shape[2]
    i, j = torch.arange(Lq)[:, None], torch.arange(Lk)
    s = q @ repeated(k, q).mT / 8 + (slope[:, None, None] * (j - i)).to(q.dtype)
    s = 30 * (s / 30).tanh()
    keep = (doc[:, :Lq, None] == doc[:, None, :Lk]) & (j <= i)
    return s.masked_fill(~keep[:, None], -torch.inf).softmax(-1).nan_to_num(0.0) @ repeated(v, q)


def closed_over(cap, lengths):
    ids = torch.cat([torch.full((n,), x) for x, n in enumerate(lengths)])

    def capped_documents(q, k, v):
        s = cap * torch.tanh(q @ repeated(k, q).mT / (8 * cap))
        keep = ids[: q.shape[2], None] == ids[None, : k.shape[2]]
        return s.masked_fill(~keep, -math.inf).softmax(-1).nan_to_num(0.0) @ repeated(v, q)

    return capped_documents


accepts(
    score="25 * tanh(s / 200)",
    mask="ids[j] == ids[i]",
    captures=("ids[400] state i32",),
    requires=("Lq <= 400", "Lk <= 400"),
)(closed_over(25.0, (12, 9, 30, 49, 300)))


FLAGS = {"extra": lambda shape, device: {"mask": (torch.arange(shape.Lk) < shape.Lk - 3).long().repeat(shape.B, 1)}}


@accepts(
    mask="mask[b, j] == 1",
    captures=("mask[B, Lk] argument i32",),
    **FLAGS,
    warns=("sees no key",),
)
def key_padding_of_zeros_and_ones(q, k, v, mask):
    hidden = (1.0 - mask[:, None, None, :].to(q.dtype)) * torch.finfo(q.dtype).min
    return (plain_scores(q, k) + hidden).softmax(-1) @ repeated(v, q)


@accepts(
    mask="(j <= i) & (mask[b, j] == 1)",
    captures=("mask[B, Lk] argument i32",),
    **FLAGS,
    warns=("sees no key",),
)
def key_padding_of_zeros_and_ones_less_one(q, k, v, mask):
    s = plain_scores(q, k) + (mask.view(mask.shape[0], 1, 1, -1) - 1) * 1e9
    return s.masked_fill(torch.ones_like(s).tril() == 0, -1e9).softmax(-1) @ repeated(v, q)


@accepts(
    mask="attend[b, j] == 1",
    extra=lambda shape, device: {"attend": (torch.arange(shape.Lk) % 5 != 2).float().repeat(shape.B, 1)},
    captures=("attend[B, Lk] argument f32",),
    warns=("sees no key",),
)
def key_padding_of_floats(q, k, v, attend):
    hidden = -1e9 * (1 - attend)[:, None, None]
    return (plain_scores(q, k) + hidden.to(q.dtype)).softmax(-1) @ repeated(v, q)


@accepts(
    score=f"{SCALE} + pair[h, i, j]",
    mask="attend[b, j] == 1",
    extra=lambda shape, device: {
        "attend": (torch.arange(shape.Lk) % 5 != 2).float().repeat(shape.B, 1),
        "pair": torch.linspace(0, 9, shape.Hq * shape.Lq * shape.Lk).reshape(shape.Hq, shape.Lq, shape.Lk),
    },
    captures=("attend[B, Lk] argument f32", "pair[Hq, Lq, Lk] argument f32"),
    warns=("sees no key",),
)
def key_padding_of_floats_beside_a_bias(q, k, v, attend, pair):
    hidden = 1e9 * (attend - 1)[:, None, None]
    return ((plain_scores(q, k) + hidden.to(q.dtype) + pair).softmax(-1) @ repeated(v, q)).to(q.dtype)


@accepts(
    mask="(j <= i) & (mask[b, j] == 1)",
    captures=("mask[B, Lk] argument i32",),
    requires=("Lk == Lq",),
    **FLAGS,
    warns=("sees no key",),
)
def two_masks_of_fills_are_added(q, k, v, mask):
    fill = torch.finfo(q.dtype).min
    causal = torch.full((q.shape[2], q.shape[2]), fill).triu(1)
    hidden = 1.0 - mask[:, None, None, :].expand(-1, 1, q.shape[2], -1).to(q.dtype)
    hidden = hidden.masked_fill(hidden.bool(), fill)
    return (plain_scores(q, k) + causal.to(q.dtype) + hidden).softmax(-1) @ repeated(v, q)


def _causal_fill(shape, device):
    return {"mask": torch.full((shape.Lq, shape.Lk), -1e30).triu(shape.Lk - shape.Lq + 1).expand(shape.B, 1, -1, -1)}


@accepts(
    score=f"{SCALE} + mask[b, i, j]",
    mask="j >= i - 11",
    extra=_causal_fill,
    captures=("mask[B, Lq, Lk] argument f32",),
    warns=("sees no key", "fills of -1e8 or less"),
)
def a_window_of_fills_in_a_mask_of_fills(q, k, v, mask):
    near = torch.where(torch.ones_like(mask, dtype=torch.bool).tril(-12), -1e30, mask)
    return (plain_scores(q, k) + near.to(q.dtype)).softmax(-1) @ repeated(v, q)


@accepts(mask="to_copy[j] <= to_copy_2[i]", captures=("to_copy[Lk] computed i32", "to_copy_2[Lq] computed i32"))
def positions_that_wrap_as_bytes(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    hidden = (j // 8).to(torch.uint8) > (i // 8).to(torch.uint8)
    return plain_scores(q, k).masked_fill(hidden, float("-inf")).softmax(-1) @ repeated(v, q)


@accepts(mask="j <= i % 100 + 7 * (j // 7)")
def positions_that_fit_into_bytes(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    hidden = (j % 7).to(torch.int8) > (i % 100).to(torch.int8)
    return plain_scores(q, k).masked_fill(hidden, float("-inf")).softmax(-1) @ repeated(v, q)


def _bias_with_holes(shape, device):
    bias = torch.linspace(-1, 1, shape.Lk)
    bias[::3], bias[1::5] = math.nan, -math.inf
    return {"bias": bias}


@accepts(score=f"{SCALE} + nan_to_num[j]", extra=_bias_with_holes, captures=("nan_to_num[Lk] computed f32",))
def holes_of_a_bias_are_filled(q, k, v, bias):
    s = plain_scores(q.float(), k.float()) + bias.nan_to_num(1.0, neginf=-8.0)
    return (s.softmax(-1) @ repeated(v.float(), q)).to(q.dtype)
