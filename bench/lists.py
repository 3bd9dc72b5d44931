"""Lists of key tiles on a GPU: are they those that torch makes, and what share of a call does making them take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from bench.build import KERNELS, Built
from bench.inputs import long_inputs
from bench.table import render
from cubridge.backend.gpu.timing import Clock, cuda_clock, interleave
from cubridge.backend.launch.call_plan import CallPlan
from cubridge.backend.launch.captured import on_device
from cubridge.backend.launch.runtime import OUTPUT, Launcher

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.backend.launch.device import Device


@dataclass(frozen=True, slots=True)
class ListRow:
    """`same`: as torch's. `visited` and `masked`: of all key tiles, how many. `lists`, `call`: milliseconds."""

    variant: str
    kernel: str
    data: str
    same: bool
    visited: float
    masked: float
    lists: float
    call: float

    @property
    def share(self) -> float:
        """Of the time of a call, that of its lists."""
        return self.lists / self.call


def list_rows(built: Iterable[Built], device: Device, rounds: int, clock: Clock = cuda_clock) -> Iterator[ListRow]:
    for item in built:
        for kernel in KERNELS:
            text = item.kernels.get(kernel)
            if item.task.long is None or text is None or not text.contract.tile_lists:
                continue
            launcher = Launcher(device, text, item.preconditions, say=lambda _: None)
            captures = on_device(cast("Mapping[str, CaptureValue]", item.captures), device.torch_device)
            inputs = long_inputs(item.task.long, device.torch_device)
            for data, given in (("as timed", captures), ("shuffled", _shuffled(captures))):
                yield _row(item.task.variant, kernel, data, launcher, inputs, given, rounds, clock)


def _shuffled(captures: Mapping[str, CaptureValue]) -> dict[str, CaptureValue]:
    """The same order for all that lies along the keys."""

    def shuffled(value: CaptureValue) -> CaptureValue:
        if not isinstance(value, Tensor) or value.is_floating_point() or value.dim() == 0:
            return value
        order = torch.randperm(value.shape[-1], generator=torch.Generator().manual_seed(0)).to(value.device)
        return value[..., order].contiguous()

    return {name: shuffled(value) for name, value in captures.items()}


def _row(
    variant: str,
    kernel: str,
    data: str,
    launcher: Launcher,
    inputs: tuple[Tensor, Tensor, Tensor],
    captures: Mapping[str, CaptureValue],
    rounds: int,
    clock: Clock,
) -> ListRow:
    plan = launcher.plan(dict(zip("qkv", inputs, strict=True)), captures, (OUTPUT,))
    assert isinstance(plan, CallPlan)
    (lists,) = plan.lists
    arrays = _arrays(plan, len(inputs), [cast("Tensor", captures[name]) for name in launcher.arrays])
    expected = replace(lists, maker=None).make(arrays)
    made = lists.make(arrays)
    works = {"lists": lambda: lists.make(arrays), "call": lambda: launcher(*inputs, captures)}
    timings = interleave(works, clock, rounds=rounds)
    if fault := next((t.fault for t in timings.values() if t.fault), None):
        raise RuntimeError(f"{variant} {kernel}, {data}: {fault}")
    tiles = expected.shape[0] * lists.shape.tiles
    visited, masked = (int(expected[:, n].sum()) / tiles for n in (0, 1))
    times = timings["lists"].median, timings["call"].median
    return ListRow(variant, kernel, data, torch.equal(made, expected), visited, masked, *times)


def _arrays(plan: CallPlan, inputs: int, captured: Sequence[Tensor]) -> list[Tensor]:
    """What the kernel reads of captured tensors."""
    arrays, first = [*captured], inputs + len(plan.made)
    for position, convert in plan.conversions:
        arrays[position - first] = convert(arrays[position - first])
    return arrays


def list_table(rows: Sequence[ListRow]) -> str:
    """Times in microseconds."""
    head = ("lists", "kernel", "data", "as torch's", "visited", "masked", "lists us", "call us", "share")
    lines = [
        (
            r.variant, r.kernel, r.data, "yes" if r.same else "NO", f"{r.visited:.1%}", f"{r.masked:.1%}",
            f"{1000 * r.lists:.1f}", f"{1000 * r.call:.1f}", f"{r.share:.1%}",
        )
        for r in rows
    ]  # fmt: skip
    return render(head, lines)
