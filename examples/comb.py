"""The composite of the CuBridge paper: prefix LM mask, capped scores, sigmoid normalizer."""

import math

import torch

CAP = 30.0


def attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = CAP * torch.tanh(s / CAP)
    keep = (j <= i) | (j < q.shape[2] // 4)
    return torch.sigmoid(s - math.log(k.shape[2])).masked_fill(~keep, 0.0) @ v
