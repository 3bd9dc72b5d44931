"""The ways of public code bases, written from memory."""
# pyright: basic
# ruff: noqa: N812

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.frontend.reference.references.helpers import repeated
from tests.frontend.reference.table import BOTTOM_RIGHT, CAUSAL, accepts, sink


def repeat_kv(x, times):
    b, h, length, d = x.shape
    if times == 1:
        return x
    return x[:, :, None, :, :].expand(b, h, times, length, d).reshape(b, h * times, length, d)


@accepts(mask=BOTTOM_RIGHT, warns=("gives a mean",))
def llama_style(q, k, v):
    b, h, length, d = q.shape
    total = k.shape[-2]
    k, v = repeat_kv(k, h // k.shape[1]), repeat_kv(v, h // v.shape[1])
    mask = torch.full((length, total), torch.finfo(q.dtype).min, dtype=q.dtype)
    mask *= torch.arange(total) > torch.arange(total - length, total).reshape(-1, 1)
    w = torch.matmul(q, k.transpose(2, 3)) * d**-0.5 + mask[None, None].expand(b, 1, -1, -1)
    w = nn.functional.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
    w = nn.functional.dropout(w, p=0.1, training=False)
    return torch.matmul(w, v).transpose(1, 2).contiguous().transpose(1, 2)


@accepts(mask=CAUSAL, kv="h", requires=("Lk == Lq", "Hq == Hk"))
def bart_style(q, k, v):
    length = q.shape[2]
    mask = torch.full((length, length), torch.finfo(torch.float32).min)
    condition = torch.arange(mask.size(-1))
    mask.masked_fill_(condition < (condition + 1).view(mask.size(-1), 1), 0)
    mask = mask.to(q.dtype)[None, None].expand(q.shape[0], 1, length, length)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@accepts(
    mask="(j <= i) & (j >= i - 11)",
    normalizer=sink("sinks[h] - m"),
    extra=lambda shape, device: {"sinks": torch.linspace(-2.0, 2.0, shape.Hq)},
    captures=("sinks[Hq] argument f32",),
)
def gpt_oss_style(q, k, v, sinks):
    b, hq, length, d = q.shape
    hk = k.shape[1]
    queries = q.permute(0, 2, 1, 3).reshape(b, length, hk, hq // hk, d).float()
    keys = k.permute(0, 2, 1, 3)[:, :, :, None, :].expand(-1, -1, -1, hq // hk, -1).float()
    values = v.permute(0, 2, 1, 3)[:, :, :, None, :].expand(-1, -1, -1, hq // hk, -1).float()
    column = sinks.reshape(1, hk, hq // hk, 1, 1).expand(b, -1, -1, length, -1)
    mask = torch.triu(queries.new_full((length, keys.shape[1]), -float("inf")), diagonal=1)
    mask = mask + torch.tril(mask.new_full((length, keys.shape[1]), -float("inf")), diagonal=-12)
    scores = torch.einsum("bqhmd,bkhmd->bhmqk", queries, keys)
    scores *= 1 / math.sqrt(d)
    scores += mask[None, None, None, :, :]
    weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]
    return torch.einsum("bhmqk,bkhmd->bqhmd", weights, values).reshape(b, length, hq, d).permute(0, 2, 1, 3).to(q.dtype)


@accepts(
    score="s * 0.125 + exp2(-8 * (h + 1) / Hq) * (j - Lk + 1)",
    mask=BOTTOM_RIGHT,
    warns=("gives a mean",),
)
def mpt_style(q, k, v):
    heads, total = q.shape[1], k.shape[2]
    bias = torch.arange(1 - total, 1, dtype=torch.int32).view(1, 1, 1, total)
    power = torch.arange(1, heads + 1, dtype=torch.float32) * (8 / heads)
    bias = bias * (1.0 / torch.pow(2, power.view(1, heads, 1, 1)))
    s = (q.float() @ repeated(k, q).float().mT) / 8 + bias
    hidden = ~torch.ones(q.shape[2], total).tril(total - q.shape[2]).bool()
    return s.masked_fill(hidden[None, None], torch.finfo(s.dtype).min).softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(mask=CAUSAL)
def neox_style(q, k, v):
    b, h, length, d = q.shape
    k, v = repeated(k, q), repeated(v, q)
    total = k.size(-2)
    q, k = q.view(b * h, length, d), k.view(b * h, total, d)
    s = torch.zeros(b * h, length, total, dtype=q.dtype)
    s = torch.baddbmm(s, q, k.transpose(1, 2), beta=1.0, alpha=d**-0.5).view(b, h, length, total)
    keep = torch.ones((1, 1, length, total), dtype=torch.bool).tril()
    s = torch.where(keep, s, torch.tensor(torch.finfo(s.dtype).min, dtype=s.dtype))
    return torch.matmul(nn.functional.softmax(s, dim=-1), v)


@accepts(
    score="s + by_distance[h, i - j + Lk + 127]",
    extra=lambda shape, device: {"table": torch.linspace(-1, 1, 32 * shape.Hq).view(shape.Hq, 32)},
    captures=("by_distance[Hq, Lk + Lq + 255] computed f32",),
)
def t5_encoder_style(q, k, v, table):
    """A bucket begins exactly at a distance of 64: log(64 / 8) / log(128 / 8) * 8 = 6."""
    n = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
    buckets, n = (n > 0).long() * 16, n.abs()
    large = 8 + (torch.log(n.float() / 8) / math.log(128 / 8) * 8).to(torch.long)
    buckets += torch.where(n < 8, n, torch.min(large, torch.full_like(large, 15)))
    return (q.float() @ repeated(k, q).float().mT + table[:, buckets]).softmax(-1).to(v.dtype) @ repeated(v, q)


@accepts(
    score="s + by_distance[h, i - j + Lk + 127]",
    extra=lambda shape, device: {"table": torch.linspace(-1, 1, 16 * shape.Hq).view(shape.Hq, 16)},
    captures=("by_distance[Hq, Lk + Lq + 255] computed f32",),
)
def t5_style(q, k, v, table):
    n = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).clamp(min=0)
    large = 8 + (torch.log(n.float().clamp(min=1) / 8) * 4).to(torch.long)
    bucket = torch.where(n < 8, n, torch.min(large, torch.full_like(large, 15)))
    return (q.float() @ repeated(k, q).float().mT + table[:, bucket]).softmax(-1).to(v.dtype) @ repeated(v, q)
