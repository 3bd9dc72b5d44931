"""Times an adapted kernel on a GPU beside what its user would otherwise run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.gpu.timing import Clock, Timing, cuda_clock, interleave
from cubridge.backend.launch.captured import on_device
from cubridge.backend.launch.runtime import Launcher
from cubridge.driver.folder import open_folder
from cubridge.driver.outputs import BENCH
from cubridge.driver.stopwatch import Progress, counted, silent
from cubridge.driver.suites.peers import PEERS, Inputs, flex, flops, sdpa
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import replace_file
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.spec import Shape
from cubridge.show.view import Speed, Timed, view_json

if TYPE_CHECKING:
    from cubridge.backend.launch.device import Device, KernelText
    from cubridge.judge.attention import Attention

HALF: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
ROUNDS: Final = 7
LONG_SHAPE: Final = Shape(2, 32, 32, 8192, 8192, 128)
"""Where the time of a kernel is that of its main loop."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Times by candidate, and the operations of the visible elements: multiplications and additions of both products."""

    shape: Shape
    flops: float
    timings: Mapping[str, Timing]

    def to_text(self) -> str:
        """One line for each candidate, the fastest first."""
        lines = [f"{self.shape}: {self.flops / 1e12:.3g} TFLOP over visible elements"]
        ranked = sorted(self.timings.items(), key=lambda item: (item[1].fault is not None, item[1].median))
        for name, timing in ranked:
            if timing.fault is not None:
                lines.append(f"{name:12} failed: {timing.fault}")
                continue
            speed = self.flops / timing.median / 1e9
            lines.append(
                f"{name:12} {timing.median:8.3f} ms ({timing.least:.3f} to {timing.most:.3f}) {speed:6.0f} TFLOP/s"
            )
        return "\n".join(lines)

    def to_view(self, device: str) -> Speed:
        """As a page shows it."""
        timed = (
            Timed(name, t.median, t.least, t.most, self.flops / t.median / 1e9, None)
            if t.fault is None
            else Timed(name, 0.0, 0.0, 0.0, 0.0, t.fault)
            for name, t in self.timings.items()
        )
        return Speed(device, str(self.shape), tuple(timed))


def bench_folder(folder: Path, peers: Sequence[str], shape: Shape | None, progress: Progress = silent) -> Measured:
    """The times of an output folder of `cuirc adapt`, kept in it for its page. Errors: CU820 without a GPU; as `open_folder`."""
    device = find_gpu()
    adapted = open_folder(folder)
    spec = adapted.reference.attention.spec
    fitting = fitting_shapes(spec, [replace(LONG_SHAPE, D=adapted.shape.D), adapted.shape])
    wanted = shape or fitting[0]
    attention = adapted.reference.attention
    measured = bench(attention, adapted.text, adapted.dtype, wanted, peers, device, progress=progress)
    speed = measured.to_view(torch.cuda.get_device_name(device.torch_device))
    replace_file(folder / BENCH, view_json(speed))
    return measured


def time_folder(folder: Path, shape: Shape) -> float:
    """A job: an output folder of `cuirc adapt` on the GPU; gives TFLOP/s over visible elements. Errors: CU820 without a GPU."""
    device = find_gpu()
    adapted = open_folder(folder)
    measured = bench(adapted.reference.attention, adapted.text, adapted.dtype, shape, (), device)
    return measured.flops / measured.timings["cubridge"].median / 1e9


def bench(
    attention: Attention,
    text: KernelText,
    dtype: str,
    shape: Shape,
    peers: Sequence[str],
    device: Device,
    clock: Clock = cuda_clock,
    rounds: int = ROUNDS,
    progress: Progress = silent,
) -> Measured:
    """Time `text` and its peers in one process, interleaved. Errors: CU827 for an unknown peer; what the launcher raises."""
    unknown = [p for p in peers if p not in PEERS]
    if unknown:
        raise CuError(Diagnostic("CU827", f"`{unknown[0]}` is no peer", help="one of " + ", ".join(PEERS)))
    generator = torch.Generator().manual_seed(0)
    sides = ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    q, k, v = (
        torch.randn(shape.B, h, n, shape.D, generator=generator).to(device.torch_device, HALF[dtype]) for h, n in sides
    )
    extra = _on_device(attention.extra(shape), device)
    captures = attention.captures(shape, extra, {"q": q, "k": k, "v": v})
    inputs = Inputs(q, k, v, _on_device(captures, device))  # pyright: ignore[reportArgumentType]
    given = on_device(captures, device.torch_device)
    launcher = Launcher(device, text, attention.spec.preconditions)
    launcher(q, k, v, given)  # a kernel that cannot run here says so, and not as one of the candidates
    candidates: dict[str, Callable[[], object]] = {"cubridge": lambda: launcher(q, k, v, given)}
    if "eager" in peers:
        candidates["eager"] = lambda: attention.half(q, k, v, extra)
    if "sdpa" in peers:
        candidates |= {f"SDPA {name}": work for name, work in sdpa(attention.spec, inputs).items()}
    if "flex" in peers and (work := flex(attention.spec, inputs)) is not None:
        candidates["Flex"] = work
    told = counted(progress, "bench", rounds * len(candidates))
    return Measured(shape, flops(attention.spec, inputs), interleave(candidates, clock, rounds=rounds, told=told))


def _on_device(values: Mapping[str, object], device: Device) -> dict[str, object]:
    return {n: v.to(device.torch_device) if isinstance(v, Tensor) else v for n, v in values.items()}
