"""Lists of key tiles on a GPU: are they those that torch makes, and what share of a call does making them take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from bench.build import KERNELS, Built
from bench.inputs import long_inputs
from bench.list_calls import ListCall, milliseconds
from bench.peers import Setting
from bench.table import render
from bench.variants import VARIANTS
from cubridge.backend.gpu.timing import Clock, cuda_clock
from cubridge.backend.launch.captured import on_device
from cubridge.backend.launch.runtime import Launcher

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.backend.launch.device import Device, KernelText


@dataclass(frozen=True, slots=True)
class ListRow:
    """`flops`: of the visible elements. `same`: as torch's. `visited` and `masked`: of all key tiles, how many. `lists`, `call`:
    milliseconds."""

    variant: str
    kernel: str
    data: str
    flops: float
    same: bool = False
    visited: float = math.nan
    masked: float = math.nan
    lists: float = math.nan
    call: float = math.nan

    @property
    def share(self) -> float:
        """Of the time of a call, that of its lists."""
        return self.lists / self.call

    @property
    def tflops(self) -> float:
        """Of the whole call."""
        return self.flops / self.call / 1e9


def list_rows(built: Iterable[Built], device: Device, rounds: int, clock: Clock = cuda_clock) -> Iterator[ListRow]:
    for item, kernel, text in listed(built):
        launcher = Launcher(device, text, item.preconditions, say=lambda _: None)
        captures = on_device(cast("Mapping[str, CaptureValue]", item.captures), device.torch_device)
        assert item.task.long is not None
        inputs = long_inputs(item.task.long, device.torch_device)
        for data, given in (("as timed", captures), ("shuffled", _shuffled(captures))):
            flops = Setting(VARIANTS[item.task.variant], *inputs, given).flops()
            row = ListRow(item.task.variant, kernel, data, flops)
            yield _row(row, ListCall(launcher, inputs, given), rounds, clock)


def listed(built: Iterable[Built]) -> Iterator[tuple[Built, str, KernelText]]:
    """What is timed and walks lists, by kernel."""
    for item in built:
        for kernel in KERNELS:
            text = item.kernels.get(kernel)
            if item.task.long is not None and text is not None and text.contract.tile_lists:
                yield item, kernel, text


def _shuffled(captures: Mapping[str, CaptureValue]) -> dict[str, CaptureValue]:
    """The same order for all that lies along the keys."""

    def shuffled(value: CaptureValue) -> CaptureValue:
        if not isinstance(value, Tensor) or value.is_floating_point() or value.dim() == 0:
            return value
        order = torch.randperm(value.shape[-1], generator=torch.Generator().manual_seed(0)).to(value.device)
        return value[..., order].contiguous()

    return {name: shuffled(value) for name, value in captures.items()}


def _row(row: ListRow, call: ListCall, rounds: int, clock: Clock) -> ListRow:
    lists = call.lists()
    same, visited, masked = lists.counts()
    times = milliseconds(lists, {"call": call}, rounds, clock)
    return replace(row, same=same, visited=visited, masked=masked, **times)


def list_table(rows: Sequence[ListRow]) -> str:
    """Times in microseconds."""
    head = ("lists", "kernel", "data", "as torch's", "visited", "masked", "lists us", "call us", "share", "TFLOP/s")
    lines = [
        (
            r.variant, r.kernel, r.data, "yes" if r.same else "NO", f"{r.visited:.1%}", f"{r.masked:.1%}",
            f"{1000 * r.lists:.1f}", f"{1000 * r.call:.1f}", f"{r.share:.1%}", r.tflops,
        )
        for r in rows
    ]  # fmt: skip
    return render(head, lines)
