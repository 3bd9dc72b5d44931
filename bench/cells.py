"""Tables of many problems, measured a cell at a time: what is kept is not measured again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import torch

from bench.backward_speed import Timed, build_timed, time_backward
from bench.build import Built, build_long, in_processes
from bench.kept import Cell, Direction, Kept
from bench.row import Row, columns_of
from bench.speed import Measure, time_all

if TYPE_CHECKING:
    from cubridge.backend.launch.device import Device

BATCH: Final = 32
"""Cells whose peers are compiled beforehand, at a time."""
COMPILED: Final = ("flex", "flex-flash", "fa4")
"""Peers that take seconds to compile, and keep what they compiled on disk."""
Ready = Built | Timed


def in_seconds(limit: float | None) -> Callable[[], bool]:
    """Is there time to begin another cell? From now."""
    until = math.inf if limit is None else time.monotonic() + limit
    return lambda: time.monotonic() < until


def measure_cells(
    cells: Iterable[Cell], kept: Kept, device: Device, measure: Measure, arch: str, *,
    workers: int | None = None, warm: int = 0, in_time: Callable[[], bool] = lambda: True,
    say: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Every cell that is not kept yet, as long as `in_time` says so. `warm`: processes that compile peers beforehand."""
    left = kept.left(cells)
    ahead = iter(_build(left, arch, workers)) if left else iter(())
    say(f"{len(left)} cells to measure")
    while in_time() and (batch := list(islice(ahead, BATCH))):
        if warm:
            once = replace(measure, peers=[p for p in measure.peers if p in COMPILED], rounds=1, clock=_once)
            in_processes(partial(_row, measure=once), [ready for _, ready in batch], warm)
        for cell, ready in batch:
            if not in_time():
                return
            row = _row(ready, replace(measure, inputs=cell.inputs), device)
            kept.add(cell, row)
            say(f"{cell}: {in_words(row)}")


def _build(cells: Sequence[Cell], arch: str, workers: int | None) -> list[tuple[Cell, Ready]]:
    """In their order."""
    ready: dict[Cell, Ready] = {}
    builders: dict[Direction, Callable[..., Sequence[Ready]]] = {"forward": build_long, "backward": build_timed}
    for direction, builder in builders.items():
        if chosen := [c for c in cells if c.direction == direction]:
            ready |= zip(chosen, builder([(c.variant, c.shape) for c in chosen], arch, workers), strict=True)
    return [(cell, ready[cell]) for cell in cells]


def _row(ready: Ready, measure: Measure, device: Device | None = None) -> Row:
    """`device`: that of this process, if not given."""
    if device is None:
        from cubridge.backend.gpu.device import find_gpu

        device = find_gpu()
    torch.compiler.reset()  # what was compiled for other cells slows the calls of this one
    (row,) = time_all([ready], device, measure) if isinstance(ready, Built) else time_backward([ready], device, measure)
    return row


def _once(work: Callable[[], object], count: int) -> float:
    """A clock for those that only compile."""
    work()
    torch.cuda.synchronize()
    return 1.0


def in_words(row: Row) -> str:
    """TFLOP/s by column."""
    if row.fault:
        return row.fault
    return ", ".join(f"{c} {t:.0f}" if (t := row.tflops(c)) else f"{c} -" for c in columns_of([row]))
