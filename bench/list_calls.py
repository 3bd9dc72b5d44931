"""A call of a kernel whose mask reads data, and its lists of key tiles apart from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import Tensor

from cubridge.backend.gpu.timing import Clock, interleave
from cubridge.backend.launch.call_plan import CallPlan
from cubridge.backend.launch.runtime import OUTPUT, Launcher

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.backend.launch.tile_plan import ListPlan

_TOGETHER: Final = 20
"""Makings of lists that a GPU is given at once: the host takes longer for one than the device does."""


@dataclass(frozen=True)
class ListCall:
    launcher: Launcher
    inputs: tuple[Tensor, Tensor, Tensor]
    captures: Mapping[str, CaptureValue]

    def __call__(self) -> object:
        return self.launcher(*self.inputs, self.captures)

    def lists(self) -> Lists:
        return lists_of(self.launcher, dict(zip("qkv", self.inputs, strict=True)), self.captures, (OUTPUT,))


def lists_of(
    launcher: Launcher, inputs: Mapping[str, Tensor], captures: Mapping[str, CaptureValue], outputs: Sequence[str]
) -> Lists:
    """Those of a call that makes `outputs`."""
    plan = launcher.plan(inputs, captures, outputs)
    assert isinstance(plan, CallPlan)
    (lists,) = plan.lists
    arrays, first = [cast("Tensor", captures[n]) for n in launcher.arrays], len(inputs) + len(plan.made)
    for position, convert in plan.conversions:
        arrays[position - first] = convert(arrays[position - first])
    return Lists(lists, arrays)


@dataclass(frozen=True)
class Lists:
    """`arrays`: what the kernel reads of captured tensors."""

    plan: ListPlan
    arrays: list[Tensor]

    def by_torch(self) -> Tensor:
        return replace(self.plan, maker=None).make(self.arrays)

    def by_kernel(self) -> Tensor:
        return self.plan.make(self.arrays)

    def counts(self) -> tuple[bool, float, float]:
        """Are they those of torch, and what part of all tiles is visited, and masked."""
        expected = self.by_torch()
        tiles = expected.shape[0] * self.plan.shape.tiles
        visited, masked = (int(expected[:, n].sum()) / tiles for n in (0, 1))
        return torch.equal(self.by_kernel(), expected), visited, masked

    def together(self) -> tuple[Callable[[], object], int]:
        """Work that makes them some times, and how often; without the host where the device is a GPU."""
        if self.plan.device.type != "cuda":
            return self.by_kernel, 1
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_TOGETHER):
                self.by_kernel()
        return graph.replay, _TOGETHER


def milliseconds(
    lists: Lists, others: Mapping[str, Callable[[], object]], rounds: int, clock: Clock
) -> dict[str, float]:
    """Of each, and of making the lists by "lists". Errors: RuntimeError where something does not run."""
    lists.by_kernel()
    made, count = lists.together()
    timings = interleave({"lists": made, **others}, clock, rounds=rounds)
    if fault := next((f"{name}: {t.fault}" for name, t in timings.items() if t.fault), None):
        raise RuntimeError(fault)
    return {name: t.median / (count if name == "lists" else 1) for name, t in timings.items()}
