"""Inputs of a check. Each kind makes some fault visible that random data would hide."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from cubridge.ir.spec import Shape

    Triple = tuple[Tensor, Tensor, Tensor]


def make_inputs(kind: str, shape: Shape, dtype: torch.dtype, seed: int) -> Triple:
    """q [B, Hq, Lq, D]; k, v [B, Hk, Lk, D] of `dtype`, the same for the same arguments on every machine."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(heads: int, length: int) -> Tensor:
        return torch.randn(shape.B, heads, length, shape.D, generator=generator)

    q, k, v = normal(shape.Hq, shape.Lq), normal(shape.Hk, shape.Lk), normal(shape.Hk, shape.Lk)
    q, k, v = KINDS[kind](q, k, v)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _random(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    return q, k, v


def _large_scores(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    """Logits of some tens: weights near one-hot, capped scores in saturation."""
    return 4.0 * q, 4.0 * k, v


def _steep(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    """Maxima that rise from key tile to key tile as the kernels walk, right to left: running states must rescale."""
    import torch

    ramp = torch.linspace(2.0, 0.1, max(k.shape[2], 1))[:, None]
    return 4.0 * q, k * ramp, v


def _rising(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    """Scores that rise by some 15 from key tile to key tile, over more than the exponents that fp32 has: a weight whose reference
    stays behind overflows."""
    import torch

    heights = torch.linspace(_RISE, 0.0, max(k.shape[2], 1))
    k, q = k.clone(), q.clone()
    k[..., 0], q[..., 0] = heights, q.shape[-1] ** 0.5
    return q, k, v


def _level(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    """All scores far below 0 and nearly equal: what hides a key by a finite score shows it, and small weights count."""
    q, k = q.clone(), k.clone()
    k[..., 0], q[..., 0] = -_DEPTH, q.shape[-1] ** 0.5
    return q, k, v


_RISE: Final = 112.0
_DEPTH: Final = 1024.0


def _index_coded(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    """V tells key, column and head apart, so that a swapped or shifted element shows."""
    import torch

    head, key, column = torch.meshgrid(*(torch.arange(n) for n in v.shape[1:]), indexing="ij")
    coded = (key % 61 - 30) / 32 + (column % 7) / 64 + head / 8
    return q, k, coded.expand(v.shape)


def _one_hot(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    """V[j] is the unit vector j mod D: the output shows the weights themselves."""
    import torch

    key = torch.arange(v.shape[2])[:, None] % v.shape[3]
    return q, k, (key == torch.arange(v.shape[3])).float().expand(v.shape)


def _constant(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    """V is 1: a normalised row gives exactly its sum of weights."""
    import torch

    return q, k, torch.ones_like(v)


KINDS: Final[dict[str, Callable[[Tensor, Tensor, Tensor], Triple]]] = {
    "random": _random,
    "large scores": _large_scores,
    "steep": _steep,
    "index-coded V": _index_coded,
    "one-hot V": _one_hot,
    "constant V": _constant,
    "rising scores": _rising,
    "level scores": _level,
}
