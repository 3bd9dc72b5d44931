"""Linear biases, then capped scores, over causal documents."""

import torch

CAP = 30.0


def extra_inputs(shape, device):
    """Uneven documents, another cut in each batch; one id per position of the longer sequence."""
    position = torch.arange(max(shape.Lq, shape.Lk), device=device)
    cuts = torch.arange(1, 5, device=device) * len(position) // 5
    shift = 7 * torch.arange(shape.B, device=device)[:, None, None]
    slopes = 2.0 ** (-8.0 * (torch.arange(shape.Hq, device=device) + 1) / shape.Hq)
    return {"doc": (position[None, :, None] >= cuts + shift).sum(-1), "slopes": slopes}


def attention(q, k, v, doc, slopes):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    s = CAP * torch.tanh((s + slopes[:, None, None] * (j - i)) / CAP)
    same = doc[:, None, : q.shape[2], None] == doc[:, None, None, : k.shape[2]]
    keep = same & (j <= i)
    return torch.softmax(s.masked_fill(~keep, -torch.inf), dim=-1).nan_to_num(0.0).to(v.dtype) @ v
