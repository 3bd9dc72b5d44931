"""Full attention."""

import torch


def attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    s = q @ k.mT * q.shape[-1] ** -0.5
    return torch.softmax(s, dim=-1) @ v
