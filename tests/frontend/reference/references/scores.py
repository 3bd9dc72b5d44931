"""Scales, biases, caps and their order."""
# pyright: basic
# ruff: noqa: N812

import math
from math import sqrt

import torch
import torch.nn.functional as F

from tests.frontend.reference.references.helpers import plain_scores, repeated
from tests.frontend.reference.table import BOTTOM_RIGHT, CAUSAL, SCALE, SIGMOID, accepts


@accepts(score="s * 2.82842712474619")
def scale_divided_twice(q, k, v):
    return (q @ repeated(k, q).mT).div(1 / 8**0.5).softmax(-1) @ repeated(v, q)


@accepts(score="s")
def no_scale(q, k, v):
    return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), scale=1.0)


@accepts(score="s * -0.4")
def negative_temperature(q, k, v):
    return (q @ repeated(k, q).mT * -0.4).softmax(-1) @ repeated(v, q)


@accepts(score="s * D ** -0.5")
def scale_split_over_q_and_k(q, k, v):
    quarter = q.shape[-1] ** -0.25
    return ((q * quarter) @ (repeated(k, q) * quarter).mT).softmax(-1) @ repeated(v, q)


@accepts(score="s * 0.125")
def base_two_exponentials(q, k, v):
    s = q @ repeated(k, q).mT * (1.4426950408889634 / 8)
    p = torch.exp2(s - s.amax(-1, keepdim=True))
    return (p @ repeated(v, q)) * p.sum(-1, keepdim=True).reciprocal()


@accepts(score="s * 0.5 + 0.05 * (j - i)")
def bias_then_scale(q, k, v):
    bias = (torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]) * 0.1
    return ((q.float() @ repeated(k, q).float().mT + bias) * 0.5).softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(score="s * 0.5 + 0.1 * (j - i)")
def scale_then_bias(q, k, v):
    bias = (torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]) * 0.1
    return (q.float() @ repeated(k, q).float().mT * 0.5 + bias).softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(score="s * D ** -0.5 + i - j")
def relative_position_added(q, k, v):
    p = torch.arange(q.shape[2]).unsqueeze(1) - torch.arange(k.shape[2]).unsqueeze(0)
    return torch.exp(F.log_softmax(plain_scores(q, k) + p, dim=-1)) @ repeated(v, q)


@accepts(score="30 * tanh(s / 240)", mask=CAUSAL)
def soft_cap(q, k, v):
    s = 30.0 * torch.tanh(q @ repeated(k, q).mT / 8 / 30.0)
    return s.masked_fill(~torch.tril(torch.ones_like(s, dtype=torch.bool)), float("-inf")).softmax(-1) @ repeated(v, q)


@accepts(score="50 * tanh(s / 800)", mask="(j <= i) & (j >= i - 15)", warns=("gives a mean",))
def soft_cap_in_steps(q, k, v):
    w = torch.matmul(q, repeated(k, q).transpose(2, 3)) * 256**-0.5
    w = w / 50.0
    w = torch.tanh(w)
    w = w * 50.0
    p = torch.arange(k.shape[2])
    keep = (p[None, :] <= torch.arange(q.shape[2])[:, None]) * (p[None, :] > torch.arange(q.shape[2])[:, None] - 16)
    return F.softmax(w + (~keep).to(w.dtype) * -2.3819763e38, -1) @ repeated(v, q)


@accepts(score="20 * tanh(s / 160)")
def negative_cap_is_the_same(q, k, v):
    return (-20.0 * torch.tanh(q @ repeated(k, q).mT / 8 / -20.0)).softmax(-1) @ repeated(v, q)


@accepts(score="where(j <= i, 10 * tanh(s / 80), -10)", warns=())
def mask_before_cap_leaks(q, k, v):
    s = q @ repeated(k, q).mT / 8
    s = s.masked_fill(torch.ones_like(s).tril() == 0, -math.inf)
    return (10 * torch.tanh(s / 10)).softmax(-1) @ repeated(v, q)


@accepts(score="cap * tanh(s * scale / cap)", extra=lambda shape, device: {"cap": 15.0, "scale": 0.2},
         captures=("cap[] argument f32", "scale[] argument f32"))  # fmt: skip
def cap_and_scale_given(q, k, v, cap, scale):
    return (cap * torch.tanh(q @ repeated(k, q).mT * scale / cap)).softmax(-1) @ repeated(v, q)


@accepts(score="minimum(maximum(s * 0.125, -5), 5)")
def clamped_scores(q, k, v):
    return torch.clamp(q @ repeated(k, q).mT / 8, -5, 5).softmax(-1) @ repeated(v, q)


@accepts(score="s * 0.125 - exp2(-8 * (h + 1) / Hq) * abs(i - j)")
def alibi_slopes_computed(q, k, v):
    H = q.shape[1]
    slopes = torch.pow(2, -8 / H * torch.arange(1, H + 1))
    distance = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs()
    s = q.float() @ repeated(k, q).float().mT / 8 - slopes[:, None, None] * distance
    return s.softmax(-1).to(v.dtype) @ repeated(v, q)


SLOPES = {"extra": lambda shape, device: {"slopes": 2.0 ** (-8.0 * (torch.arange(shape.Hq) + 1) / shape.Hq)},
          "captures": ("slopes[Hq] argument f32",)}  # fmt: skip


@accepts(score="s * 0.125 + slopes[h] * (j - i + Lq - Lk)", mask=BOTTOM_RIGHT, warns=("reference gives NaN",), **SLOPES)
def alibi_bottom_right(q, k, v, slopes):
    Lq, Lk = q.shape[2], k.shape[2]
    lag = torch.arange(Lk)[None] - torch.arange(Lq)[:, None] - (Lk - Lq)
    s = q.float() @ repeated(k, q).float().mT / 8 + slopes.view(1, -1, 1, 1) * lag
    return s.masked_fill(lag > 0, float("-inf")).softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(score="s * 0.125 + slopes[h] * j", mask=CAUSAL, **SLOPES)
def alibi_of_key_positions(q, k, v, slopes):
    s = (q.float() @ repeated(k, q).float().transpose(-1, -2)).mul(0.125)
    s += slopes[None, :, None, None] * torch.arange(k.shape[2]).float()
    return s.masked_fill(torch.ones_like(s).tril() == 0, -math.inf).softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(score="s * 0.125 + slopes[h] * (j - i)", mask=CAUSAL, **SLOPES)
def alibi_from_two_products(q, k, v, slopes):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    slope = slopes[:, None, None]
    s = q.float() @ repeated(k, q).float().mT / 8 + slope * j - slope * i
    return s.masked_fill(j > i, -math.inf).softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(score="s * D ** -0.5 - log(Lk)", normalizer=SIGMOID)
def score_with_logarithm_of_length(q, k, v):
    s = q @ repeated(k, q).mT / sqrt(q.shape[-1]) - math.log(k.shape[2])
    return torch.sigmoid(s) @ repeated(v, q)


@accepts(score="s * log(Lk) * D ** -0.5")
def scale_grows_with_length(q, k, v):
    return (q @ repeated(k, q).mT * (math.log(k.shape[2]) / math.sqrt(q.shape[-1]))).softmax(-1) @ repeated(v, q)


@accepts(score="s * 0.125", mask=CAUSAL)
def upcast_everywhere(q, k, v):
    s = q.to(torch.float32) @ repeated(k, q).to(torch.float32).mT
    s = (s * 0.125).masked_fill(torch.ones(s.shape[-2:]).triu(1).bool(), -math.inf)
    return (s.softmax(-1, dtype=torch.float64).to(v.dtype) @ repeated(v, q)).type_as(q)


@accepts(score="where(j <= i, s * 0.125, -10000)", warns=("is a bias, not a mask",))
def fill_of_ten_thousand_is_a_bias(q, k, v):
    s = q @ repeated(k, q).mT / 8
    return s.masked_fill(torch.ones_like(s).tril() == 0, -1e4).softmax(-1) @ repeated(v, q)


@accepts(
    score="s * 10 * q_factor[b, h, i] * k_factor[b, h // (Hq // Hk), j]",
    captures=("k_factor[B, Hk, Lk] computed f32", "q_factor[B, Hq, Lq] computed f32"),
)
def cosine(q, k, v):
    return (F.normalize(q, dim=-1) @ F.normalize(repeated(k, q), dim=-1).mT * 10).softmax(-1) @ repeated(v, q)


@accepts(score="s * 0.5 * (tanh(s * 0.797884560802865 + 0.0356774081363001 * (s * s * s)) + 1)")
def gelu_of_the_score_by_tanh(q, k, v):
    return F.gelu(q @ repeated(k, q).mT, approximate="tanh").softmax(-1) @ repeated(v, q)


@accepts(score="s + where(j <= i, -(abs(i - j) // 3), abs(i - j) // 3)")
def quotient_by_a_negative_number_towards_zero(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    return (q @ repeated(k, q).mT + torch.div(i - j, -3, rounding_mode="trunc")).softmax(-1) @ repeated(v, q)


@accepts(score="s + maximum(j, i)")
def larger_position_by_max_of_two_tensors(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    return (q @ repeated(k, q).mT + torch.max(i, j)).softmax(-1) @ repeated(v, q)


@accepts(score=f"{SCALE} + where(j <= i, 2, 0)")
def product_added_to_a_bias(q, k, v):
    batch, heads, rows, depth = q.shape
    bias = torch.ones(rows, k.shape[2], dtype=q.dtype).tril() - 1
    flat = repeated(k, q).flatten(0, 1).mT
    s = torch.baddbmm(bias, q.flatten(0, 1), flat, beta=2, alpha=depth**-0.5).view(batch, heads, rows, -1)
    return s.softmax(-1) @ repeated(v, q)


@accepts(score="s * 0.75 * D ** -0.5 + 0.25 * tanh(s * D ** -0.5)")
def interpolated(q, k, v):
    s = plain_scores(q, k)
    return torch.lerp(s, s.tanh(), 0.25).softmax(-1) @ repeated(v, q)


@accepts(score="s * D ** -0.5 - 0.5 * cos(i) * sin(j)")
def product_added(q, k, v):
    i, j = torch.arange(q.shape[2]).cos()[:, None], torch.arange(k.shape[2]).sin()
    s = torch.addcmul(plain_scores(q, k).float(), i, j, value=-0.5)
    return s.softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(score=f"{SCALE} + 2 * j / (Lk - 1)", requires=("Lk >= 2", "Lk - 1 != 0"))
def step_that_one_key_has_not(q, k, v):
    n = k.shape[2]
    step = 2 / (n - 1) if n > 1 else 0.0
    s = plain_scores(q, k).float() + torch.arange(n) * step
    return s.softmax(-1).to(v.dtype) @ repeated(v, q)
