"""Lists of query tiles on a GPU: are they those that torch makes, and what share of a backward pass does making them take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bench.backward_speed import captures_of, forward_of
from bench.inputs import long_inputs
from bench.list_calls import lists_of, milliseconds
from bench.table import render
from cubridge.backend.gpu.timing import Clock, cuda_clock
from cubridge.backend.launch.backward import ROW_VALUES, BackwardLauncher

if TYPE_CHECKING:
    from bench.backward_speed import Timed
    from cubridge.backend.launch.device import Device


@dataclass(frozen=True, slots=True)
class BackwardListRow:
    """`same`: as torch's. `visited`, `masked`: of all query tiles, how many. `lists`, `call`: milliseconds of making lists, and of
    the pass with them."""

    variant: str
    shape: str
    same: bool
    visited: float
    masked: float
    lists: float
    call: float

    @property
    def share(self) -> float:
        return self.lists / self.call


def backward_list_rows(
    built: Iterable[Timed], device: Device, rounds: int, clock: Clock = cuda_clock
) -> Iterator[BackwardListRow]:
    for timed in built:
        if timed.texts is not None and timed.texts[1].contract.tile_lists and not timed.fault:
            yield _row(timed, BackwardLauncher.of(device, timed.texts, say=lambda _: None), device, rounds, clock)


def _row(timed: Timed, launch: BackwardLauncher, device: Device, rounds: int, clock: Clock) -> BackwardListRow:
    q, k, v = long_inputs(timed.shape, device.torch_device)
    captures, d_o = captures_of(timed, device), torch.ones_like(q)
    o, lse = forward_of(timed, device, q, k, v, captures)
    made = launch.rows.run({"o": o, "d_o": d_o, "lse": lse, "d_lse": torch.zeros_like(lse)}, captures, ROW_VALUES)
    read = {"q": q, "k": k, "v": v, "d_o": d_o, "lse_rows": made["lse_rows"], "delta": made["delta"]}
    lists = lists_of(launch.pairs, read, captures, ("dk", "dv"))
    same, visited, masked = lists.counts()
    times = milliseconds(lists, {"call": lambda: launch(q, k, v, o, lse, d_o, None, captures)}, rounds, clock)
    return BackwardListRow(timed.variant, str(timed.shape), same, visited, masked, **times)


def backward_list_table(rows: Sequence[BackwardListRow]) -> str:
    """Times in microseconds."""
    head = ("lists, backward", "shape", "as torch's", "visited", "masked", "lists us", "call us", "share")
    lines = [
        (
            r.variant, r.shape, "yes" if r.same else "NO", f"{r.visited:.1%}", f"{r.masked:.1%}", f"{1000 * r.lists:.1f}",
            f"{1000 * r.call:.1f}", f"{r.share:.1%}",
        )
        for r in rows
    ]  # fmt: skip
    return render(head, lines)
