"""Each variant on both kernels beside what users would otherwise run, in one process, interleaved. Whatever fails is reported in
its place, and the rest goes on."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import torch

from bench.build import KERNELS, Built
from bench.candidates import Candidates, Works, differences, reason
from bench.inputs import extra_of, long_inputs
from bench.peers import Setting
from bench.row import Row, columns_of
from bench.table import render
from bench.variants import VARIANTS
from cubridge.backend.gpu.timing import Clock, cuda_clock, interleave
from cubridge.backend.launch.captured import on_device
from cubridge.backend.launch.device import Device, KernelText
from cubridge.backend.launch.runtime import Launcher

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue

OURS: Final = "sm90a"
"""Whose results those of the others are compared with."""


@dataclass(frozen=True, slots=True)
class Measure:
    """How a table is timed. `inputs`: of `bench.inputs`."""

    peers: Sequence[str]
    rounds: int = 7
    inputs: str = "normal"
    clock: Clock = cuda_clock


def time_all(built: Iterable[Built], device: Device, measure: Measure) -> list[Row]:
    rows: list[Row] = []
    for item in built:
        if item.task.long is None:
            continue
        try:
            rows.append(time_variant(item, device, measure))
        except Exception as error:  # a variant that fails as a whole must not cost the others their times
            rows.append(Row(item.task.variant, str(item.task.long), math.nan, {}, fault=reason(error)))
        torch.cuda.empty_cache()
    return rows


def time_variant(item: Built, device: Device, measure: Measure) -> Row:
    shape = item.task.long
    assert shape is not None
    variant = VARIANTS[item.task.variant]
    with tempfile.TemporaryDirectory() as folder:
        reference = variant.load(long=True, folder=Path(folder))
    q, k, v = long_inputs(shape, device.torch_device, measure.inputs)
    setting = Setting(variant, q, k, v, extra_of(reference, shape, device.torch_device))
    made = Candidates()
    made.add_peers(measure.peers, setting, reference)
    for kernel in KERNELS:
        made.add(kernel, partial(_ours, item, kernel, device, setting))
    differing = differences(made.works, OURS)
    timings = {**interleave(made.works, measure.clock, rounds=measure.rounds), **made.faults}
    return Row(variant.name, str(shape), setting.flops(), timings, differing)


def _ours(item: Built, kernel: str, device: Device, setting: Setting) -> Works:
    text: KernelText | None = item.kernels.get(kernel)
    if text is None:
        raise RuntimeError("; ".join(f for f in item.faults if f" {kernel}: " in f) or "not built")
    launcher = Launcher(device, text, item.preconditions, say=lambda _: None)
    captures = on_device(cast("Mapping[str, CaptureValue]", item.captures), device.torch_device)
    return {kernel: lambda: launcher(setting.q, setting.k, setting.v, captures)}


def speed_table(rows: Sequence[Row]) -> str:
    """TFLOP/s over visible elements; the goal is that of this card."""
    used = columns_of(rows)
    lines = [(r.variant, *(r.tflops(c) for c in used), VARIANTS[r.variant].goal) for r in rows]
    return render(("TFLOP/s", *used, "goal"), lines)


def all_ran(rows: Sequence[Row]) -> bool:
    """Did both of our kernels run for every variant? Peers may fail."""
    return all(kernel in row.timings and row.timings[kernel].fault is None for row in rows for kernel in KERNELS)
