"""Inputs of timed problems. Their values set what power a card draws, and how often a kernel rescales."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Final

import torch
from torch import Tensor

from cubridge.ir.spec import Shape

SPIKES: Final = 1e-3
"""The share of entries that are spikes."""


def _spiked(x: Tensor) -> Tensor:
    return torch.where(torch.rand_like(x, dtype=torch.float32) < SPIKES, 50 * x, x)


DISTRIBUTIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "normal": lambda x: x,
    "sigma6": lambda x: 6 * x,
    "sigma16": lambda x: 16 * x,
    "spikes": _spiked,
}
"""From the normal distribution."""


def long_inputs(shape: Shape, device: torch.device, distribution: str = "normal") -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a timed shape."""
    torch.manual_seed(0)
    sides = ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    plain = (torch.randn(shape.B, h, n, shape.D, dtype=torch.bfloat16, device=device) for h, n in sides)
    q, k, v = (DISTRIBUTIONS[distribution](x) for x in plain)
    return q, k, v


def extra_of(reference: ModuleType, shape: Shape, device: torch.device) -> dict[str, object]:
    """The reference's arguments besides q, k, v, made on the CPU as those are that the kernels get."""
    made: Mapping[str, object] = reference.extra_inputs(shape, "cpu") if hasattr(reference, "extra_inputs") else {}
    return {name: v.to(device) if isinstance(v, Tensor) else v for name, v in made.items()}
