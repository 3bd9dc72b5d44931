"""Bidirectional attention with linear biases in the distance; `slopes` [Hq] is captured."""

import torch


def extra_inputs(shape, device):
    return {"slopes": 2.0 ** (-8.0 * (torch.arange(shape.Hq, device=device) + 1) / shape.Hq)}


def attention(q, k, v, slopes):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    own = i + (k.shape[2] - q.shape[2])
    s = s - slopes[:, None, None] * (own - j).abs()
    return torch.softmax(s, dim=-1).to(v.dtype) @ v
