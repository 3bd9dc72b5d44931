"""One question, several answers that do not see each other (reward models, DPO; FlashMask). `answer` [B, L]
numbers the answers of a sample, 0 is its question; `sample` [B, L] numbers the samples, -1 is trailing padding."""

import torch


def extra_inputs(shape, device):
    position = torch.arange(shape.Lq, device=device)
    length = max(
        shape.Lq // 2, 1
    )  # two samples: a question of a quarter and three answers each, some padding at the end
    sample = torch.where(position < shape.Lq - shape.Lq // 16, position // length, -1)
    answer = position % length // (length // 4 + 1)
    return {"answer": answer.expand(shape.B, -1), "sample": sample.expand(shape.B, -1)}


def attention(q, k, v, answer, sample):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None, :]
    s = q @ k.mT * q.shape[-1] ** -0.5
    own, other = sample[:, None, :, None], sample[:, None, None, :]
    asked = answer[:, None, None, :] == 0
    same = answer[:, None, :, None] == answer[:, None, None, :]
    keep = (j <= i) & (own == other) & (own >= 0) & (asked | same)
    s = s.masked_fill(~keep, -torch.inf)
    return torch.softmax(s, dim=-1).nan_to_num(0.0) @ v
