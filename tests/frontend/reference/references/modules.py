"""Modules with buffers and parameters, closures, methods."""
# pyright: basic
# ruff: noqa: N812

import math

import torch
import torch.nn.functional as F
from torch import nn

from cubridge.ir.spec import Shape
from tests.frontend.reference.references.helpers import repeated
from tests.frontend.reference.table import SCALE, accepts


class CausalBuffer(nn.Module):
    """A mask for the longest sequence, sliced at run time, and a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(512, 512)).view(1, 1, 512, 512))
        self.temperature = nn.Parameter(torch.tensor([0.25]))

    def forward(self, q, k, v):
        s = q @ repeated(k, q).transpose(-2, -1) * self.temperature.to(q.dtype)
        s = s.masked_fill(self.bias[:, :, : q.size(2), : k.size(2)] == 0, float("-inf"))
        return F.dropout(F.softmax(s, dim=-1), 0.1, training=self.training) @ repeated(v, q)


accepts(
    mask="bias[i, j] != 0",
    score="s * temperature[0]",
    captures=("bias[512, 512] state f32", "temperature[1] state f32"),
    requires=("Lq <= 512", "Lk <= 512"),
)(CausalBuffer().eval())


class Heads(nn.Module):
    """Slopes and scales of a fixed number of heads."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.1, 0.3, heads)[:, None, None])
        self.register_buffer("slopes", torch.tensor([0.5 ** (h + 1) for h in range(heads)]))

    def score(self, q, k):
        return torch.clamp(q @ k.mT * self.scale.to(q.dtype), -15.0, 15.0)

    def forward(self, q, k, v):
        s = self.score(q, repeated(k, q))
        lag = torch.arange(k.shape[2], device=q.device) - torch.arange(q.shape[2], device=q.device).unsqueeze(-1)
        s = s - self.slopes[:, None, None].to(q.dtype) * lag.abs()
        return s.softmax(-1) @ repeated(v, q)


accepts(
    score="minimum(maximum(s * scale[h], -15), 15) - slopes[h] * abs(i - j)",
    captures=("scale[6] state f32", "slopes[6] state f32"),
    kv="h // 2",
    requires=("Hk == 3", "Hq == 6"),
    shape=Shape(2, 6, 3, 257, 321, 64),
)(Heads(6))


class Windowed:
    """A plain object whose method is the reference."""

    def __init__(self, width: int) -> None:
        self.width = width

    def attention(self, q, k, v):
        lag = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
        s = torch.einsum("bhid,bhjd->bhij", q, repeated(k, q)) / math.sqrt(q.shape[-1])
        return torch.where((lag >= 0) & (lag < self.width), s, -torch.inf).softmax(-1).nan_to_num(0) @ repeated(v, q)


accepts(mask="(j <= i) & (j >= i - 8)")(Windowed(9).attention)


def make_reference(scale):
    @torch.no_grad()
    def decorated(q, k, v):
        return F.scaled_dot_product_attention(q, repeated(k, q), repeated(v, q), scale=scale)

    return decorated


accepts(score="s * 0.3")(make_reference(0.3))


class Called:
    def __call__(self, q, k, v):
        return (q @ repeated(k, q).mT * q.shape[-1] ** -0.5).softmax(-1) @ repeated(v, q)


accepts(score=SCALE)(Called())
