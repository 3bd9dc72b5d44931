"""Normalizers: softmax by hand, sigmoid, ReLU, sinks, sums that differ from the numerator."""
# pyright: basic
# ruff: noqa: N812

import math
from math import log, sqrt

import torch
import torch.nn.functional as F

from tests.frontend.reference.references.helpers import plain_scores, repeated
from tests.frontend.reference.table import BOTTOM_RIGHT, CAUSAL, RELU, SIGMOID, SOFTMAX, Normalizer, accepts, sink


@accepts(mask=CAUSAL)
def softmax_by_hand(q, k, v):
    s = plain_scores(q, k).masked_fill(torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None], float("-inf"))
    e = (s - s.max(-1, keepdim=True).values).exp()
    return (e @ repeated(v, q)) / e.sum(-1, keepdim=True)


@accepts()
def softmax_detached_maximum(q, k, v):
    s = torch.einsum("...id,...jd->...ij", q, repeated(k, q)) * q.shape[-1] ** -0.5
    w = (s - s.amax(dim=-1, keepdim=True).detach()).exp()
    w = w / (1e-6 * 0 + w.sum(dim=-1, keepdim=True))
    return torch.einsum("...ij,...jd->...id", w, repeated(v, q))


@accepts(mask=CAUSAL)
def softmax_with_lse(q, k, v):
    s = plain_scores(q, k)
    s = s.masked_fill(torch.ones(q.shape[2], k.shape[2]).tril() == 0, -math.inf)
    lse = torch.logsumexp(s, -1)
    return torch.exp(s - lse[..., None]) @ repeated(v, q), lse


@accepts(mask="j < i")
def softmax_of_rows_without_keys(q, k, v):
    keep = torch.arange(k.shape[2]) < torch.arange(q.shape[2])[:, None]
    s = plain_scores(q, k).masked_fill(~keep, -math.inf)
    top = s.amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, 0.0, top)
    e = torch.exp(s - top)
    total = e.sum(-1, keepdim=True)
    return (e @ repeated(v, q)) / torch.where(keep.any(-1)[:, None], total, 1.0)


EPSILON = Normalizer(
    "exp(x - m)", ("R1 = sum exp(x - m)",), "acc / (R1 + 0.001 * exp(-m))", "m + log(R1 + 0.001 * exp(-m))", True
)


@accepts(normalizer=EPSILON)
def epsilon_in_the_denominator(q, k, v):
    w = torch.exp(plain_scores(q, k))
    return (w @ repeated(v, q)) / (w.sum(-1, keepdim=True) + 1e-3)


@accepts(score="s * D ** -0.5 - log(Lk)", normalizer=SIGMOID)
def sigmoid(q, k, v):
    return torch.sigmoid(plain_scores(q, k) - math.log(k.shape[2])) @ repeated(v, q)


@accepts(score="s * D ** -0.5 - log(Lk)", mask=CAUSAL, normalizer=SIGMOID)
def sigmoid_by_hand(q, k, v):
    s = q @ repeated(k, q).mT / sqrt(q.shape[-1])
    s = s.masked_fill(~torch.ones(q.shape[2], k.shape[2]).bool().tril(), float("-inf"))
    return (1 / (1 + torch.exp(-(s - log(k.shape[2]))))) @ repeated(v, q)


@accepts(score="s * D ** -0.5 - log(Lk)", normalizer=SIGMOID)
def sigmoid_by_reciprocal(q, k, v):
    s = q @ repeated(k, q).mT / q.shape[-1] ** 0.5 + -torch.log(torch.tensor(k.shape[2], dtype=torch.float32)).to(
        q.dtype
    )
    return torch.reciprocal(1 + (-s).exp()) @ repeated(v, q)


@accepts(score="30 * tanh(s * D ** -0.5 / 30)", mask="(j <= i) | (j < Lq // 4)", normalizer=SIGMOID)
def comb(q, k, v):
    s = 30 * torch.tanh(plain_scores(q, k) / 30)
    j = torch.arange(k.shape[2])
    keep = (j <= torch.arange(q.shape[2])[:, None]) | (j < q.shape[2] // 4)
    return torch.where(keep, torch.sigmoid(s), 0.0) @ repeated(v, q)


@accepts(normalizer=RELU)
def relu(q, k, v):
    return F.relu(plain_scores(q, k)) / k.shape[2] @ repeated(v, q)


@accepts(mask=CAUSAL, normalizer=RELU)
def relu_by_clamp(q, k, v):
    s = plain_scores(q, k).clamp(min=0)
    return (s * torch.ones(q.shape[2], k.shape[2]).tril()).div(k.size(2)) @ repeated(v, q)


@accepts(mask=CAUSAL, normalizer=RELU)
def relu_as_mean(q, k, v):
    a = torch.maximum(torch.einsum("bhid,bhjd->bhij", q, repeated(k, q)) / math.sqrt(q.shape[-1]), torch.zeros(()))
    a = torch.where(torch.ones(a.shape[-2:], dtype=torch.bool).tril(), a, 0)
    return (a[..., None] * repeated(v, q)[:, :, None]).mean(dim=3)


@accepts(normalizer=Normalizer("maximum(x, 0) * maximum(x, 0)", (), "acc / Lk", None, False))
def squared_relu(q, k, v):
    return F.relu(plain_scores(q, k)).square() / k.shape[2] @ repeated(v, q)


@accepts(normalizer=Normalizer("log(exp(x) + 1)", ("R1 = sum log(exp(x) + 1)",), "acc / R1", None, False))
def softplus_normalised(q, k, v):
    w = torch.log1p(torch.exp(plain_scores(q, k)))
    return (w / w.sum(-1, keepdim=True)) @ repeated(v, q)


@accepts(normalizer=Normalizer("x / (1 + exp(-x))", (), "acc / Lk", None, False))
def silu_weights(q, k, v):
    return F.silu(plain_scores(q, k)) @ repeated(v, q) / k.shape[2]


@accepts(mask=CAUSAL, normalizer=Normalizer("maximum(x, 0)", ("R1 = sum 1",), "acc / R1", None, False))
def relu_over_visible_count(q, k, v):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    w = torch.relu(plain_scores(q, k)).masked_fill(~keep, 0.0)
    return w @ repeated(v, q) / keep.sum(-1, keepdim=True)


ABSOLUTE = Normalizer("x", ("R1 = sum abs(x * D ** -0.5)",), "acc * D ** -0.5 / maximum(R1, 1)", None, False)


@accepts(score="s", normalizer=ABSOLUTE)
def absolute_denominator_clamped(q, k, v):
    w = plain_scores(q, k)
    return w @ repeated(v, q) / w.abs().sum(-1, keepdim=True).clamp(min=1.0)


SINKS = {
    "extra": lambda shape, device: {"sinks": torch.linspace(-1.0, 2.0, shape.Hq)},
    "captures": ("sinks[Hq] argument f32",),
}


@accepts(mask=CAUSAL, normalizer=sink("sinks[h] - m"), **SINKS)
def sink_as_last_column(q, k, v, sinks):
    s = plain_scores(q.float(), k.float())
    s = s.masked_fill(torch.triu(torch.ones(q.shape[2], k.shape[2], dtype=torch.bool), 1), float("-inf"))
    column = sinks.view(1, -1, 1, 1).expand(s.shape[0], -1, s.shape[2], 1)
    return torch.softmax(torch.cat([s, column], dim=-1), dim=-1)[..., :-1].to(v.dtype) @ repeated(v, q)


@accepts(mask=CAUSAL, normalizer=sink("sinks[h] - m"), **SINKS)
def sink_less_the_maximum_twice(q, k, v, sinks):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = plain_scores(q, k).masked_fill(j > i, float("-inf"))
    s = torch.cat([s, sinks.view(1, -1, 1, 1).expand(s.shape[0], -1, s.shape[2], 1)], -1)
    s = s - s.max(-1, keepdim=True).values
    return s.softmax(-1)[..., :-1].to(v.dtype) @ repeated(v, q)


@accepts(normalizer=sink("sinks[h] - m"), **SINKS)
def sink_by_logaddexp(q, k, v, sinks):
    s = plain_scores(q.float(), k.float())
    total = torch.logaddexp(s.logsumexp(-1), sinks[None, :, None])
    return (s - total.unsqueeze(-1)).exp().to(v.dtype) @ repeated(v, q)


@accepts(normalizer=sink("-m"))
def off_by_one_as_padding(q, k, v):
    s = F.pad(plain_scores(q, k), (1, 0))
    return s.softmax(-1)[..., 1:] @ repeated(v, q)


@accepts(normalizer=sink("-m"))
def off_by_one_by_hand(q, k, v):
    s = plain_scores(q, k)
    m = s.amax(-1, keepdim=True).clamp(min=0)
    e = torch.exp(s - m)
    return (e / (torch.exp(-m) + e.sum(-1, keepdim=True))) @ repeated(v, q)


GATED = Normalizer("exp(x - m)", SOFTMAX.rows, "acc * gate[h] / R1", None, True)


@accepts(
    normalizer=GATED, extra=lambda shape, device: {"gate": torch.rand(shape.Hq)}, captures=("gate[Hq] argument f32",)
)
def output_scaled_per_head(q, k, v, gate):
    return (plain_scores(q, k).softmax(-1) @ repeated(v, q)) * gate[:, None, None]


MASK_AFTER = Normalizer("exp(x - m)", ("R1 = sum exp(x - m) over True",), "acc / R1", "m + log(R1)", True)


@accepts(mask=CAUSAL, normalizer=MASK_AFTER)
def mask_after_softmax(q, k, v):
    p = plain_scores(q, k).softmax(-1)
    return p.masked_fill(torch.ones(q.shape[2], k.shape[2]).triu(1) != 0, 0.0) @ repeated(v, q)


_DIFFERENCE = "exp(x - m) - exp(-m)"


def softpick(top: str, *rows: str) -> Normalizer:
    """`top`: the epsilon in the unit of the sums."""
    rows = (*rows, f"R{len(rows) + 1} = sum abs({_DIFFERENCE})")
    total = f"R{len(rows)} + {top}"
    return Normalizer(f"maximum({_DIFFERENCE}, 0)", rows, f"acc / ({total})", f"m + log({total})", True)


@accepts(
    normalizer=softpick("1e-08 * exp(R1 - m)", "R1 = max x"),
    mask=BOTTOM_RIGHT,
    warns=("sees no key",),
    no_gradient="CU531",
)
def softpick_published(q, k, v):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    x = plain_scores(q, k).masked_fill(~keep, -torch.inf)
    top = torch.max(x, dim=-1, keepdim=True).values
    above = torch.exp(x - top) - torch.exp(-top)
    sizes = torch.where(x.isfinite(), torch.abs(above), 0)
    return F.relu(above) / (torch.sum(sizes, dim=-1, keepdim=True) + 1e-8) @ repeated(v, q)


@accepts(normalizer=softpick("1e-06 * exp(maximum(R1, 0) - m)", "R1 = max x"), no_gradient="CU531")
def softpick_of_a_clamped_maximum(q, k, v):
    x = plain_scores(q, k)
    top = x.amax(-1, keepdim=True).clamp(min=0)
    above = torch.exp(x - top) - torch.exp(-top)
    return torch.relu(above) / (above.abs().sum(-1, keepdim=True) + 1e-6) @ repeated(v, q)


@accepts(normalizer=softpick("1e-06 * exp(-m)"))
def softpick_by_expm1(q, k, v):
    above = torch.expm1(plain_scores(q, k))
    return torch.relu(above) / (above.abs().sum(-1, keepdim=True) + 1e-6) @ repeated(v, q)
