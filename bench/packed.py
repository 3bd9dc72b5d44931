"""Documents one after the other in one long row, beside a call for each: what the lists of a long row cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from bench.inputs import long_inputs
from bench.list_calls import ListCall, milliseconds
from bench.lists import listed
from bench.table import render
from cubridge.backend.gpu.timing import Clock, cuda_clock
from cubridge.backend.launch.runtime import Launcher

if TYPE_CHECKING:
    from bench.build import Built
    from cubridge.backend.launch.device import Device

COUNT: Final = 16
"""Documents of a row, each as long as a row is timed."""
_PACKED: Final = ("documents", "documents_causal")
"""Variants whose only data is `doc`, numbers [B, L]."""


@dataclass(frozen=True, slots=True)
class PackedRow:
    """`same`: the lists, as torch's. `lists`, `packed`, `apart`: milliseconds of making lists, of the call, of a call for each
    document."""

    variant: str
    kernel: str
    keys: int
    same: bool
    lists: float
    packed: float
    apart: float

    @property
    def ratio(self) -> float:
        return self.packed / self.apart


def packed_rows(
    built: Iterable[Built], device: Device, rounds: int, clock: Clock = cuda_clock, count: int = COUNT
) -> Iterator[PackedRow]:
    for item, kernel, text in listed(built):
        if item.task.variant not in _PACKED or item.task.long is None:
            continue
        length = item.task.long.Lq
        shape = replace(item.task.long, B=1, Lq=count * length, Lk=count * length)
        q, k, v = long_inputs(shape, device.torch_device)
        launcher = Launcher(device, text, item.preconditions, say=lambda _: None)
        doc = torch.arange(shape.Lk, dtype=torch.int32, device=device.torch_device).div(length, rounding_mode="floor")[
            None
        ]
        whole = ListCall(launcher, (q, k, v), {"doc": doc})
        parts = [slice(n, n + length) for n in range(0, shape.Lq, length)]
        apart = [
            ListCall(launcher, (q[:, :, x], k[:, :, x], v[:, :, x]), {"doc": doc[:, x].contiguous()}) for x in parts
        ]
        lists = whole.lists()
        same = torch.equal(lists.by_kernel(), lists.by_torch())
        works = {"packed": whole, "apart": lambda calls=apart: [call() for call in calls]}
        yield PackedRow(item.task.variant, kernel, shape.Lk, same, **milliseconds(lists, works, rounds, clock))


def packed_table(rows: Sequence[PackedRow]) -> str:
    """Times in microseconds."""
    head = ("one row", "kernel", "keys", "as torch's", "lists us", "call us", "a call each us", "ratio")
    lines = [
        (
            r.variant, r.kernel, r.keys, "yes" if r.same else "NO", f"{1000 * r.lists:.1f}", f"{1000 * r.packed:.1f}",
            f"{1000 * r.apart:.1f}", f"{r.ratio:.2f}",
        )
        for r in rows
    ]  # fmt: skip
    return render(head, lines)
