"""Spellings that were once turned away though they are right: numpy on sizes, odd names, sentinels, whole powers, joined masks."""
# pyright: basic
# ruff: noqa: N812

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy import sqrt as root

from tests.frontend.reference.references.helpers import plain_scores, repeated
from tests.frontend.reference.table import CAUSAL, SCALE, accepts, refuses


def attend(s, q, v):
    return s.softmax(-1).to(v.dtype) @ repeated(v, q)


def rows(q):
    return torch.arange(q.shape[2])[:, None]


def keys(k):
    return torch.arange(k.shape[2])


@accepts(score=SCALE)
def numpy_root(q, k, v):
    return attend(q @ repeated(k, q).mT / np.sqrt(q.shape[-1]), q, v)


@accepts(score=SCALE)
def imported_root(q, k, v):
    return attend(q @ repeated(k, q).mT / root(q.shape[-1]), q, v)


@accepts(score="s * log(Lk)")
def numpy_logarithm(q, k, v):
    return attend(q @ repeated(k, q).mT * np.log(k.shape[2]), q, v)


@accepts(score=SCALE)
def numpy_power(q, k, v):
    return attend(q @ repeated(k, q).mT * np.power(q.shape[-1], -0.5), q, v)


@accepts(score=SCALE, mask="abs(i // i32(Lk ** 0.5) - j // i32(Lk ** 0.5)) < 2", warns=("gives NaN",))
def whole_root(q, k, v):
    side = math.isqrt(k.shape[2])
    return attend(plain_scores(q, k).masked_fill((rows(q) // side - keys(k) // side).abs() > 1, -torch.inf), q, v)


@accepts(score=SCALE, mask="j <= i // 2")
def floor_of_a_product(q, k, v):
    return attend(plain_scores(q, k).masked_fill(torch.floor(rows(q) * 0.5) < keys(k), -torch.inf), q, v)


@accepts(score=SCALE, mask="j != i")
def filled_diagonal(q, k, v):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    keep.fill_diagonal_(False)
    return attend(plain_scores(q, k).masked_fill(~keep, -torch.inf), q, v)


@accepts(score=f"{SCALE} + exp[h] * j".replace("exp", "captured_exp"), captures=("captured_exp[Hq] argument f32",),
         extra=lambda shape, device: {"exp": torch.linspace(0.0, 1.0, shape.Hq)})  # fmt: skip
def argument_named_as_a_function(q, k, v, exp):
    return attend(plain_scores(q, k) + exp[:, None, None] * keys(k), q, v)


@accepts(score=SCALE, mask="captured_m[b, j]", captures=("captured_m[B, Lk] argument bool",),
         extra=lambda shape, device: {"m": (torch.arange(shape.Lk) % 9 > 0).expand(shape.B, 1, 1, -1)})  # fmt: skip
def argument_named_as_the_shift(q, k, v, m):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m, enable_gqa=True)


@accepts(score=SCALE, mask=CAUSAL)
def nothing_beside_the_output(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), None


@accepts(score=SCALE, mask="(j >= pad[b]) & (j <= i + pad[b])", captures=("pad[B] argument i32",),
         warns=("a row that sees no key: the reference gives NaN there",),
         extra=lambda shape, device: {"pad": 3 * torch.arange(shape.B, dtype=torch.int32)})  # fmt: skip
def sentinel(q, k, v, pad):
    pad = pad[:, None, None, None]
    column = torch.where(keys(k) >= pad, keys(k) - pad, 2**32)
    return attend(plain_scores(q, k).masked_fill(column > rows(q), -torch.inf), q, v)


LINEAR = torch.nn.Linear(1, 1, bias=False)


@accepts(score="s * D ** -0.5 - weight[0] * (j - i)", captures=("weight[1] state f32",))
def linear_in_the_distance(q, k, v):
    lag = (rows(q) - keys(k)).float()[..., None]
    return attend(plain_scores(q, k) + LINEAR(lag)[..., 0], q, v)


@accepts(score="-sqrt(maximum(k_factor[b, h // (Hq // Hk), j] - s * 2 + q_factor[b, h, i], 0))",
         captures=("k_factor[B, Hk, Lk] computed f32", "q_factor[B, Hq, Lq] computed f32"))  # fmt: skip
def distance_of_torch(q, k, v):
    return attend(-torch.cdist(q, repeated(k, q)), q, v)


@accepts(score="D ** -0.5 * (s * 2 - k_factor[b, h // (Hq // Hk), j] - q_factor[b, h, i])",
         captures=("k_factor[B, Hk, Lk] computed f32", "q_factor[B, Hq, Lq] computed f32"))  # fmt: skip
def distance(q, k, v):
    k = repeated(k, q)
    lag = (q * q).sum(-1)[..., None] + (k * k).sum(-1)[..., None, :] - 2 * (q @ k.mT)
    return attend(-lag * q.shape[-1] ** -0.5, q, v)


@accepts(score="t * where(j <= i, s * D ** -0.5, -1000000000.0)", captures=("t[] argument f32",), warns=("is a bias",),
         extra=lambda shape, device: {"t": 0.5})  # fmt: skip
def temperature_after_the_fill(q, k, v, t):
    return attend(plain_scores(q, k).masked_fill(keys(k) > rows(q), -1e9) * t, q, v)


@accepts(score=f"{SCALE} + mask[b, i, j]", captures=("mask[B, Lq, Lk] argument f32",),
         extra=lambda shape, device: {"mask": torch.zeros(shape.B, 1, shape.Lq, shape.Lk, dtype=torch.bfloat16)})  # fmt: skip
def half_mask(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


@accepts(score=f"{SCALE} + where(j > 0, bias[j - 1], 0)", captures=("bias[Lk - 1] argument f32",), requires=("Lk >= 2",),
         extra=lambda shape, device: {"bias": torch.linspace(0.0, 1.0, shape.Lk - 1)})  # fmt: skip
def padded(q, k, v, bias):
    return attend(plain_scores(q, k) + F.pad(bias, (1, 0)), q, v)


@refuses("CU484", "over D // 2 of D columns", "@ k[..., :n].mT")
def two_products(q, k, v):
    k, n = repeated(k, q), q.shape[-1] // 2
    return attend(q[..., :n] @ k[..., :n].mT + q[..., n:] @ k[..., n:].mT, q, v)


@refuses("CU486", "filled with -10000, and the weights drop them", ".masked_fill(hidden, -10000.0)",
         lambda shape, device: {"lens": shape.Lk - 9 * torch.arange(shape.B) - 1})  # fmt: skip
def filled_and_dropped(q, k, v, lens):
    hidden = keys(k) >= lens[:, None, None, None]
    p = plain_scores(q, k).float().masked_fill(hidden, -10000.0).softmax(-1)
    return p.masked_fill(hidden, 0.0).to(v.dtype) @ repeated(v, q)


@accepts(score=f"{SCALE} + slice[b, i, j]", captures=("slice[B, Lq, Lk] computed f32",),
         warns=("one element for each", "are a mask"),
         extra=lambda shape, device: {"mask": torch.full((shape.B, 1, shape.Lq, shape.Lk + 19), -1e30).triu(30)})  # fmt: skip
def longer_mask(q, k, v, mask):
    return attend(plain_scores(q, k).float() + mask[..., : k.shape[2]], q, v)
