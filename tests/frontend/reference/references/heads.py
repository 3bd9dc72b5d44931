"""Grouped heads, layouts and packed rows."""
# pyright: basic
# ruff: noqa: N812

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.frontend.reference.table import CAUSAL, accepts


@accepts(kv="h % Hk")
def heads_tiled(q, k, v):
    group = q.shape[1] // k.shape[1]
    return (q @ k.repeat(1, group, 1, 1).mT * q.shape[-1] ** -0.5).softmax(-1) @ v.repeat(1, group, 1, 1)


@accepts()
def heads_by_gather(q, k, v):
    of_head = torch.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    return (q @ k[:, of_head].mT * q.shape[-1] ** -0.5).softmax(-1) @ v.index_select(1, of_head)


@accepts(mask=CAUSAL)
def rows_of_a_group_packed(q, k, v):
    B, Hq, L, D = q.shape
    packed = q.view(B, k.shape[1], Hq // k.shape[1] * L, D)
    s = packed @ k.mT / math.sqrt(D)
    row = (torch.arange(packed.shape[2]) % L)[:, None]
    return (s.masked_fill(row < torch.arange(k.shape[2]), -torch.inf).softmax(-1) @ v).view(B, Hq, L, D)


@accepts(mask=CAUSAL)
def length_before_heads(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    s.masked_fill_(torch.ones(s.shape[-2:]).triu(1).bool(), float("-inf"))
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v).transpose(1, 2)


@accepts()
def unflattened_groups(q, k, v):
    keys, values = k.transpose(2, 3).unsqueeze(2), v.unsqueeze(2)
    groups = q.unflatten(1, (k.shape[1], -1))
    weights = nn.Softmax(dim=4)(torch.matmul(groups, keys).mul(q.size(-1) ** (-1 / 2)))
    return torch.matmul(weights, values).flatten(1, 2)


@accepts()
def einsum_with_groups_last(q, k, v):
    B, _, L, D = q.shape
    groups = q.view(B, k.size(1), -1, L, D).permute(0, 1, 3, 2, 4)
    s = torch.einsum("b g i r d, b g j d -> b g r i j", groups, k) / D**0.5
    return torch.einsum("b g r i j, b g j d -> b g r i d", s.softmax(-1), v).flatten(1, 2)


@accepts(requires=("Hk == 5", "Hq == 15"), kv="h // 3")
def loop_over_heads(q, k, v):
    outs = []
    for h in range(q.shape[1]):
        g = h // (q.shape[1] // k.shape[1])
        outs.append(torch.softmax(q[:, h] @ k[:, g].mT * q.shape[-1] ** -0.5, -1) @ v[:, g])
    return torch.stack(outs, 1)


@accepts(requires=("B == 2",), mask=CAUSAL)
def loop_over_batch(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return torch.stack([F.scaled_dot_product_attention(q[n], k[n], v[n], is_causal=True) for n in range(q.shape[0])])


@accepts(kv="h", requires=("Hq == Hk",))
def one_head_each(q, k, v):
    return torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1)), dim=-1).matmul(v)
