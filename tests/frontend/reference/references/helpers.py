"""Ways to repeat key heads for grouped queries."""

from __future__ import annotations

from torch import Tensor


def repeated(x: Tensor, q: Tensor) -> Tensor:
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)


def expanded(x: Tensor, q: Tensor) -> Tensor:
    batch, heads, length, width = x.shape
    group = q.size(1) // heads
    return x[:, :, None].expand(batch, heads, group, length, width).reshape(batch, heads * group, length, width)


def plain_scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ repeated(k, q).mT * q.shape[-1] ** -0.5
