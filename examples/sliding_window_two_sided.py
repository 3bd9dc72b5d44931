"""Window of LEFT keys before and RIGHT keys after the query's own (Longformer), aligned bottom right."""

import torch

LEFT, RIGHT = 96, 32


def attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    own = i + (k.shape[2] - q.shape[2])
    keep = (j >= own - LEFT) & (j <= own + RIGHT)
    return torch.softmax(s.masked_fill(~keep, -torch.inf), dim=-1) @ v
