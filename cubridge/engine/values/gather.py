"""Elements of captured tensors: read with checks, and made up where only a few of very many are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from cubridge.engine.core.operands import fault
from cubridge.ir.nodes import Expr

Item: TypeAlias = Any
"""A number, or a tensor that broadcasts to the others."""


class Elements(Protocol):
    """What is read of a tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def ndim(self) -> int: ...

    def __getitem__(self, indices: Any, /) -> Tensor: ...


def gather_checked(base: Elements, name: str, indices: list[Tensor], guards: list[Item], node: Expr) -> Tensor:
    """Elements of a captured tensor; all that are really read must lie inside it."""
    if len(indices) != base.ndim:
        raise fault("CU301", f"`{name}` has {base.ndim} axes", node)
    inside: list[Tensor] = []
    for axis, index in enumerate(indices):
        size = base.shape[axis]
        low, high = (int(index.min()), int(index.max())) if index.numel() else (0, 0)
        if low < 0 or high >= size:
            outside = (index < 0) | (index >= size)
            for guard in guards:
                outside = outside & guard
            if bool(outside.any()):
                message = f"an index of `{name}` runs from {low} to {high}, and its axis {axis} has {size} elements"
                raise fault("CU313", message, node)
            index = index.clamp(0, max(size - 1, 0))
        inside.append(index.long())
    return base[tuple(torch.broadcast_tensors(*inside))]


@dataclass(frozen=True, slots=True)
class MadeUp:
    """A tensor of any size, of which each element follows from its indices and a seed.

    Integers are `step` times one in [low, high), as booleans where `is_flag`; floats are multiples of 2 ** -10 in [-1, 1), times
    `span`. `pad`: elements after the last axis, which repeat its last element. `run`: neighbours along the last axis that are the
    same."""

    extents: tuple[int, ...]
    seed: int
    low: int
    high: int
    is_float: bool
    is_flag: bool = False
    pad: int = 0
    run: int = 1
    step: int = 1
    span: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.extents[:-1], self.extents[-1] + self.pad) if self.extents else ()

    @property
    def ndim(self) -> int:
        return len(self.extents)

    def __getitem__(self, indices: tuple[Tensor | int, ...], /) -> Tensor:
        places = [torch.as_tensor(x) for x in indices]
        mixed = torch.tensor(self.seed * 7919 + 1)
        for axis, (index, extent) in enumerate(zip(places, self.extents, strict=True)):
            inside = _unrepeated(index).long().clamp(0, max(extent - 1, 0))
            inside = inside // self.run if axis == len(self.extents) - 1 else inside
            mixed = (mixed * 2654435761 + (inside * 40503 + 12345)).bitwise_and_(0x7FFFFFFF)
            mixed = mixed.bitwise_xor_(mixed >> 15).mul_(2246822519).bitwise_and_(0x7FFFFFFF)
        mixed = mixed.bitwise_xor_(mixed >> 13).expand(torch.broadcast_shapes(*(x.shape for x in places)))
        if self.is_float:
            return (mixed % 2048 - 1024).double() / 1024 * self.span
        whole = (mixed % (self.high - self.low) + self.low) * self.step
        return whole.bool() if self.is_flag else whole


def _unrepeated(index: Tensor) -> Tensor:
    """The same without the repetitions of axes that it was expanded along."""
    repeated = [axis for axis, step in enumerate(index.stride()) if step == 0]
    for axis in repeated:
        index = index.narrow(axis, 0, min(1, index.shape[axis]))
    return index
