"""Causal attention with one learned sink logit per head (gpt-oss); `sinks` [Hq] is captured."""

import torch


def extra_inputs(shape, device):
    return {"sinks": torch.linspace(-1.0, 2.0, shape.Hq, device=device)}


def attention(q, k, v, sinks):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = s.masked_fill(j > i, -torch.inf)
    sink = sinks[None, :, None, None].expand(s.shape[0], -1, s.shape[2], 1)
    weights = torch.softmax(torch.cat([s, sink], dim=-1), dim=-1)[..., :-1]
    return weights.to(v.dtype) @ v
