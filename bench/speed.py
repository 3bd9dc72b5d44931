"""Each variant on both kernels beside what users would otherwise run, in one process, interleaved."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import Tensor

from bench.build import KERNELS, Built
from bench.peers import Setting, eager, flex, sdpa
from bench.table import render
from bench.variants import VARIANTS
from cubridge.backend.device import Device
from cubridge.backend.runtime import Launcher
from cubridge.backend.timing import Timing, cuda_clock, interleave
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from cubridge.backend.captured import CaptureValue

PEERS: Final = ("eager", "sdpa", "flex")
COLUMNS: Final = ("eager", "SDPA cuDNN", "SDPA FA2", "SDPA mask", "Flex", "sm80", "sm90a")


@dataclass(frozen=True, slots=True)
class Row:
    """Times of one variant by column, and the operations of the visible elements."""

    variant: str
    shape: str
    flops: float
    timings: Mapping[str, Timing]

    def tflops(self, column: str) -> float | None:
        timing = self.timings.get(column)
        if timing is None or math.isnan(timing.median):
            return None
        return self.flops / timing.median / 1e9


def time_all(built: Iterable[Built], device: Device, peers: Sequence[str], rounds: int) -> list[Row]:
    rows: list[Row] = []
    for item in built:
        if item.task.long is not None:
            rows.append(time_variant(item, device, peers, rounds))
            torch.cuda.empty_cache()
    return rows


def time_variant(item: Built, device: Device, peers: Sequence[str], rounds: int) -> Row:
    shape = item.task.long
    assert shape is not None
    variant = VARIANTS[item.task.variant]
    extra = _on_device(item.extra, device.torch_device)
    setting = Setting(variant, *_inputs(shape, device.torch_device), extra)
    with tempfile.TemporaryDirectory() as folder:
        reference = variant.load(long=True, folder=Path(folder)).attention
    candidates: dict[str, Callable[[], object]] = {}
    if "eager" in peers:
        candidates["eager"] = eager(setting, reference)
    if "sdpa" in peers:
        candidates |= {f"SDPA {name}": work for name, work in sdpa(setting).items()}
    if "flex" in peers and (work := flex(setting)) is not None:
        candidates["Flex"] = work
    captures = cast("Mapping[str, CaptureValue]", _on_device(item.captures, device.torch_device))
    for kernel, text in item.kernels.items():
        launcher = Launcher(device, text, item.preconditions, say=lambda _: None)
        candidates[kernel] = _ours(launcher, setting, captures)
    return Row(variant.name, str(shape), setting.flops(), interleave(candidates, cuda_clock, rounds=rounds))


def _ours(launcher: Launcher, setting: Setting, captures: Mapping[str, CaptureValue]) -> Callable[[], object]:
    return lambda: launcher(setting.q, setting.k, setting.v, captures)


def _inputs(shape: Shape, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    sides = ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    q, k, v = (torch.randn(shape.B, h, n, shape.D, dtype=torch.bfloat16, device=device) for h, n in sides)
    return q, k, v


def _on_device(values: Mapping[str, object], device: torch.device) -> dict[str, object]:
    return {name: v.to(device) if isinstance(v, Tensor) else v for name, v in values.items()}


def speed_table(rows: Sequence[Row]) -> str:
    """TFLOP/s over visible elements; the goal is that of this card."""
    used = [c for c in COLUMNS if any(c in r.timings for r in rows)]
    lines = [(r.variant, *(r.tflops(c) for c in used), VARIANTS[r.variant].goal) for r in rows]
    return render(("TFLOP/s", *used, "goal"), lines)


def all_ran(rows: Sequence[Row]) -> bool:
    """Did both of our kernels run for every variant? Peers may fail."""
    return all(kernel in row.timings and row.timings[kernel].fault is None for row in rows for kernel in KERNELS)


def speed_faults(rows: Sequence[Row]) -> list[str]:
    return [f"{r.variant} {name}: {t.fault}" for r in rows for name, t in r.timings.items() if t.fault]
