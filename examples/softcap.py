"""Causal attention with scores capped to (-30, 30) (Gemma 2)."""

import torch

CAP = 30.0


def attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = CAP * torch.tanh(s / CAP)
    keep = j <= i
    return torch.softmax(s.masked_fill(~keep, -torch.inf), dim=-1) @ v
