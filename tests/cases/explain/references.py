"""References whose gradients are derived in another way than those of the examples, or refused."""

import torch
import torch.nn.functional as F  # noqa: N812


def scores(q, k):
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5


def times(weights, v):
    return weights @ v.repeat_interleave(weights.shape[1] // v.shape[1], 1)


def mask_after_softmax(q, k, v):
    s = scores(q, k)
    seen = torch.arange(k.shape[2]) <= torch.arange(q.shape[2])[:, None]
    return times(s.softmax(-1).masked_fill(~seen, 0.0), v), s.logsumexp(-1)


def clamped_sum(q, k, v):
    s = F.silu(scores(q, k))
    return times(s, v) / s.abs().sum(-1, keepdim=True).clamp(min=1.0)


def gated(q, k, v):
    return torch.tanh(times(scores(q, k).softmax(-1), v))


def softplus(q, k, v):
    s = F.softplus(scores(q, k))
    return times(s / s.sum(-1, keepdim=True), v)


def over_the_largest(q, k, v):
    weights = torch.exp(scores(q, k))
    return times(weights, v) / weights.amax(-1, keepdim=True)


def relu_and_clamp(q, k, v):
    s = scores(q, k)
    return times(F.relu(s) * s.clamp(max=2.0), v)


def distance(q, k, v):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    squares = (q * q).sum(-1)[..., None] + (k * k).sum(-1)[..., None, :]
    return times((2 * (q @ k.mT) - squares).softmax(-1), v)
