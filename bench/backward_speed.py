"""The backward pass of each variant as it is timed, beside autograd's way through what users of PyTorch run."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import Tensor

from bench.backward import Texts, compile_texts, lowered
from bench.build import captures_at, in_processes
from bench.candidates import PEERS, Candidates, differences, reason
from bench.inputs import extra_of, long_inputs
from bench.peers import Setting, Work
from bench.row import Row, columns_of
from bench.speed import Measure
from bench.table import render
from bench.variants import VARIANTS
from cubridge.backend.gpu.timing import interleave
from cubridge.backend.launch.backward import BackwardLauncher
from cubridge.backend.launch.captured import on_device
from cubridge.backend.launch.device import Device, KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.driver.backward import FORWARD
from cubridge.ir.spec import Shape

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue

PRODUCTS: Final = 2.5
"""Matrix products of a backward pass, for those of the forward pass."""


@dataclass(slots=True)
class Timed:
    """The texts of one variant and what they read at one shape. `fault`: why there are none."""

    variant: str
    shape: Shape
    forward: KernelText | None = None
    texts: Texts | None = None
    captures: Mapping[str, object] = field(default_factory=dict)
    fault: str = ""


def build_timed(wanted: Sequence[tuple[str, Shape]], arch: str, workers: int | None = None) -> list[Timed]:
    """In their order; machine code for `arch` goes into the compile cache."""
    alike = groupby((Timed(name, shape) for name, shape in wanted), lambda t: (t.variant, t.shape.D))
    groups = [list(group) for _, group in alike]
    return [timed for group in in_processes(partial(_build, arch=arch), groups, workers) for timed in group]


def _build(group: list[Timed], arch: str) -> list[Timed]:
    """Of one adaptation. What fails is recorded, and the rest goes on."""
    for timed in group:
        try:
            adapted, passes = lowered(timed.variant, "bf16", timed.shape.D, long=True)
            timed.forward, timed.texts = adapted.text, passes.texts
            timed.captures = captures_at(adapted, timed.shape)
            compile_texts((adapted.text, *passes.texts), "bf16", timed.shape.D, arch)
        except Exception as error:
            timed.fault = reason(error)
    return group


def time_backward(built: Iterable[Timed], device: Device, measure: Measure) -> list[Row]:
    rows: list[Row] = []
    for timed in built:
        try:
            rows.append(time_one(timed, device, measure))
        except Exception as error:  # a variant that fails as a whole must not cost the others their times
            rows.append(Row(timed.variant, str(timed.shape), math.nan, {}, fault=reason(error)))
        torch.cuda.empty_cache()
    return rows


def time_one(timed: Timed, device: Device, measure: Measure) -> Row:
    if timed.texts is None or timed.forward is None or timed.fault:
        raise RuntimeError(timed.fault or "not built")
    variant = VARIANTS[timed.variant]
    with tempfile.TemporaryDirectory() as folder:
        reference = variant.load(long=True, folder=Path(folder))
    q, k, v = long_inputs(timed.shape, device.torch_device, measure.inputs)
    dout = torch.randn_like(q)
    made = Candidates()
    made.add(FORWARD, lambda: {FORWARD: _ours(timed, device, q, k, v, dout)})
    learned = tuple(x.clone().requires_grad_() for x in (q, k, v))
    setting = Setting(
        variant, learned[0], learned[1], learned[2], extra_of(reference, timed.shape, device.torch_device)
    )
    peers = Candidates()
    peers.add_peers([p for p in measure.peers if PEERS[p].backward], setting, reference)
    made.faults |= peers.faults
    for column, work in peers.works.items():
        made.add(column, lambda column=column, work=work: {column: _backward_of(work, learned, dout)})
    differing = differences(made.works, FORWARD)
    timings = {**interleave(made.works, measure.clock, rounds=measure.rounds), **made.faults}
    return Row(timed.variant, str(timed.shape), PRODUCTS * setting.flops(), timings, differing)


def _ours(timed: Timed, device: Device, q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> Work:
    assert timed.texts is not None
    captures = captures_of(timed, device)
    out, lse = forward_of(timed, device, q, k, v, captures)
    launch = BackwardLauncher.of(device, timed.texts, say=lambda _: None)
    return lambda: launch(q, k, v, out, lse, dout, None, captures)


def captures_of(timed: Timed, device: Device) -> Mapping[str, CaptureValue]:
    return on_device(cast("Mapping[str, CaptureValue]", timed.captures), device.torch_device)


def forward_of(
    timed: Timed, device: Device, q: Tensor, k: Tensor, v: Tensor, captures: Mapping[str, CaptureValue]
) -> tuple[Tensor, Tensor]:
    assert timed.forward is not None
    return _forward(Launcher(device, timed.forward, say=lambda _: None), q, k, v, captures)


def _forward(
    launcher: Launcher, q: Tensor, k: Tensor, v: Tensor, captures: Mapping[str, CaptureValue]
) -> tuple[Tensor, Tensor]:
    """Output and LSE; zeros of a variant that has none, which its backward pass does not read."""
    has_lse = any(t.name == "lse" for t in launcher.text.contract.tensors)
    found = launcher(q, k, v, captures, lse=has_lse)
    return found if isinstance(found, tuple) else (found, torch.zeros(q.shape[:3], device=q.device))


def _backward_of(work: Work, inputs: tuple[Tensor, ...], dout: Tensor) -> Work:
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # the graph is walked again and again
    out = work()
    assert isinstance(out, Tensor)
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


def backward_table(rows: Sequence[Row]) -> str:
    used = columns_of(rows)
    return render(("TFLOP/s, backward", *used), [(r.variant, *(r.tflops(c) for c in used)) for r in rows])
