"""Causal sigmoid attention with bias -ln Lk (Ramapuram 2025)."""

import math

import torch


def attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    keep = j <= i
    return torch.sigmoid(s - math.log(k.shape[2])).masked_fill(~keep, 0.0) @ v
