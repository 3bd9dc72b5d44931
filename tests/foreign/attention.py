"""Attention in fp64, over tensors [batch, length, heads, head dimension] as FlashAttention has them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

HEAD_DIM = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """`left`, `right`: how far a row sees around its diagonal, which ends at the last key; -1: as far as there are keys."""

    batch: int
    heads: int
    key_heads: int
    len_q: int
    len_kv: int
    left: int = -1
    right: int = -1

    @property
    def is_causal(self) -> bool:
        return (self.left, self.right) == (-1, 0)

    @property
    def is_local(self) -> bool:
        return not self.is_causal and (self.left, self.right) != (-1, -1)

    @property
    def scale(self) -> float:
        return HEAD_DIM**-0.5

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        made = torch.Generator().manual_seed(self.len_q * 1000 + self.len_kv)
        lengths = ((self.len_q, self.heads), (self.len_kv, self.key_heads), (self.len_kv, self.key_heads))
        q, k, v = (torch.randn(self.batch, n, h, HEAD_DIM, generator=made).bfloat16() for n, h in lengths)
        return q, k, v


def attention(shape: Shape, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Output [batch, length, heads, head dimension] and log-sum-exp [batch, heads, length]; 0 and -inf where a row sees nothing."""
    groups = shape.heads // shape.key_heads
    q, k, v = (t.double().transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    distance = torch.arange(shape.len_kv) - torch.arange(shape.len_q)[:, None] - (shape.len_kv - shape.len_q)
    left, right = (math.inf if x < 0 else x for x in (shape.left, shape.right))
    scores = (q @ k.transpose(-1, -2) * shape.scale).masked_fill((distance < -left) | (distance > right), -math.inf)
    out = torch.nan_to_num(scores.softmax(-1)) @ v
    return out.transpose(1, 2), scores.logsumexp(-1)
