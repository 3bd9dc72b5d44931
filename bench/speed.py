"""Each variant on both kernels beside what users would otherwise run, in one process, interleaved. Whatever fails is reported in
its place, and the rest goes on."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import Tensor

from bench.build import KERNELS, Built
from bench.peers import Setting, eager, flex, sdpa
from bench.table import render
from bench.variants import VARIANTS
from cubridge.backend.gpu.timing import Clock, Timing, cuda_clock, interleave
from cubridge.backend.launch.captured import on_device
from cubridge.backend.launch.device import Device, KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue

COLUMNS: Final = ("eager", "SDPA cuDNN", "SDPA FA2", "SDPA mask", "Flex", "sm80", "sm90a")

Works = Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Row:
    """Times of one variant by column, and the operations of the visible elements. `fault`: why there are none at all."""

    variant: str
    shape: str
    flops: float
    timings: Mapping[str, Timing]
    fault: str | None = None

    def tflops(self, column: str) -> float | None:
        timing = self.timings.get(column)
        if timing is None or math.isnan(timing.median):
            return None
        return self.flops / timing.median / 1e9


def time_all(
    built: Iterable[Built], device: Device, peers: Sequence[str], rounds: int, clock: Clock = cuda_clock
) -> list[Row]:
    rows: list[Row] = []
    for item in built:
        if item.task.long is None:
            continue
        try:
            rows.append(time_variant(item, device, peers, rounds, clock))
        except Exception as error:  # a variant that fails as a whole must not cost the others their times
            rows.append(Row(item.task.variant, str(item.task.long), math.nan, {}, _reason(error)))
        torch.cuda.empty_cache()
    return rows


def time_variant(item: Built, device: Device, peers: Sequence[str], rounds: int, clock: Clock = cuda_clock) -> Row:
    shape = item.task.long
    assert shape is not None
    variant = VARIANTS[item.task.variant]
    with tempfile.TemporaryDirectory() as folder:
        reference = variant.load(long=True, folder=Path(folder))
    setting = Setting(
        variant, *long_inputs(shape, device.torch_device), extra_of(reference, shape, device.torch_device)
    )
    made = _Candidates()
    if "eager" in peers:
        made.add("eager", lambda: {"eager": eager(setting, reference.attention)})
    if "sdpa" in peers:
        made.add("SDPA mask", lambda: {f"SDPA {name}": work for name, work in sdpa(setting).items()})
    if "flex" in peers:
        made.add("Flex", lambda: {} if (work := flex(setting)) is None else {"Flex": work})
    for kernel in KERNELS:
        made.add(kernel, partial(_ours, item, kernel, device, setting))
    timings = {**interleave(made.works, clock, rounds=rounds), **made.faults}
    return Row(variant.name, str(shape), setting.flops(), timings)


@dataclass(slots=True)
class _Candidates:
    """What can be timed, and why the rest cannot."""

    works: dict[str, Callable[[], object]] = field(default_factory=dict[str, Callable[[], object]])
    faults: dict[str, Timing] = field(default_factory=dict[str, Timing])

    def add(self, column: str, make: Callable[[], Works]) -> None:
        try:
            self.works |= make()
        except Exception as error:  # a peer may fail in any way; it is reported beside the others
            self.faults[column] = Timing(fault=_reason(error))


def _ours(item: Built, kernel: str, device: Device, setting: Setting) -> Works:
    text: KernelText | None = item.kernels.get(kernel)
    if text is None:
        raise RuntimeError("; ".join(f for f in item.faults if f" {kernel}: " in f) or "not built")
    launcher = Launcher(device, text, item.preconditions, say=lambda _: None)
    captures = on_device(cast("Mapping[str, CaptureValue]", item.captures), device.torch_device)
    return {kernel: lambda: launcher(setting.q, setting.k, setting.v, captures)}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def long_inputs(shape: Shape, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a timed shape."""
    torch.manual_seed(0)
    sides = ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    q, k, v = (torch.randn(shape.B, h, n, shape.D, dtype=torch.bfloat16, device=device) for h, n in sides)
    return q, k, v


def extra_of(reference: ModuleType, shape: Shape, device: torch.device) -> dict[str, object]:
    """The reference's arguments besides q, k, v, made on the CPU as those are that the kernels get."""
    made = reference.extra_inputs(shape, "cpu") if hasattr(reference, "extra_inputs") else {}
    return _on_device(made, device)


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
    """What is missing in the table, and why."""
    whole = [f"{r.variant}: {r.fault}" for r in rows if r.fault]
    return whole + [f"{r.variant} {name}: {t.fault}" for r in rows for name, t in r.timings.items() if t.fault]
