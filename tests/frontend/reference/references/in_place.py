"""Mutation: of scores, of masks, through views, of arguments."""
# pyright: basic
# ruff: noqa: N812

import math

import torch
import torch.nn.functional as F

from tests.frontend.reference.references.helpers import plain_scores, repeated
from tests.frontend.reference.table import CAUSAL, SCALE, accepts


@accepts(mask=CAUSAL)
def masked_fill_in_place(q, k, v):
    s = plain_scores(q, k)
    s.masked_fill_(torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None], -torch.inf)
    return s.softmax(-1) @ repeated(v, q)


@accepts(mask=CAUSAL)
def mask_filled_before_use(q, k, v):
    mask = torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype)
    mask.masked_fill_(torch.ones_like(mask).tril() == 0, torch.finfo(q.dtype).min)
    s = plain_scores(q, k)
    s += mask
    return s.softmax(-1) @ repeated(v, q)


@accepts(
    score=f"{SCALE} + bias[i, j]",
    mask=CAUSAL,
    extra=lambda shape, device: {"bias": torch.zeros(shape.Lq, shape.Lk)},
    captures=("bias[Lq, Lk] argument f32",),
    warns=("writes into its argument `bias`",),
)
def argument_filled_in_place(q, k, v, bias):
    bias.masked_fill_(torch.ones_like(bias).tril() == 0, -math.inf)
    return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=bias, enable_gqa=True).to(q.dtype)


@accepts(score="s * 0.5 * D ** -0.5", warns=("writes into its argument `q`",))
def query_scaled_in_place(q, k, v):
    q.mul_(0.5)
    return plain_scores(q, k).softmax(-1) @ repeated(v, q)


@accepts(score=f"{SCALE} + where(j >= 3, where(j < 5, 2, 1), 0)", requires=("Lk >= 5",))
def writes_through_views(q, k, v):
    mask = torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype)
    tail = mask.t()[3:]
    tail.add_(1.0)
    tail[:2].mul_(2)
    return (plain_scores(q, k) + mask).softmax(-1) @ repeated(v, q)


@accepts(mask="(j == 0) | (j == i)")
def diagonal_and_first_column(q, k, v):
    keep = torch.eye(q.shape[2], k.shape[2], dtype=torch.bool)
    keep[:, 0] = True
    return plain_scores(q, k).masked_fill(~keep, -torch.inf).softmax(-1) @ repeated(v, q)


@accepts(mask=CAUSAL)
def softmax_in_place(q, k, v):
    s = plain_scores(q, k)
    s.masked_fill_(torch.ones_like(s, dtype=torch.bool).triu_(1), -torch.inf)
    s.sub_(s.amax(-1, keepdim=True)).exp_()
    s /= s.sum(-1, keepdim=True)
    return s @ repeated(v, q)


@accepts(score="where(h >= 3, tanh(s * s * s * D ** -1.5), s * s * s * D ** -1.5)", requires=("Hq >= 5",))
def functions_in_place(q, k, v):
    s = plain_scores(q, k)
    s **= 3
    torch.tanh_(s[:, 3:])
    return s.softmax(-1) @ repeated(v, q)


@accepts()
def product_into_a_buffer(q, k, v):
    s = torch.empty(*q.shape[:-1], k.shape[2], dtype=q.dtype)
    torch.matmul(q, repeated(k, q).mT, out=s)
    return s.mul_(q.shape[-1] ** -0.5).softmax(-1) @ repeated(v, q)


@accepts(requires=("B <= 2", "B >= 2"))
def slice_past_the_batch(q, k, v):
    s = plain_scores(q, k)
    s[3:] *= 2
    return s.softmax(-1) @ repeated(v, q)
