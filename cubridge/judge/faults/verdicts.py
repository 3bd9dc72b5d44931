"""Judging faults: the static verifier, then the order engine, then the value engine; what none of them tells apart is proven
harmless or counted as missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import torch
from torch import Tensor

from cubridge.engine.order.engine import run_order
from cubridge.engine.order.run import Trace
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.engine.values.tiles import TORCH
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Global, Kernel, TensorMap
from cubridge.ir.spec import Shape
from cubridge.ir.tile_shape import head_dim, key_tile, query_tile, size_of
from cubridge.ir.types import DType
from cubridge.judge.faults.catalog import Fault
from cubridge.verify.events import event_graph, graph_key
from cubridge.verify.verifier import verify


class Verdict(StrEnum):
    CAUGHT = "caught"
    EQUIVALENT = "equivalent"
    MISSED = "missed"
    NO_CHANGE = "no change"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`by`: who told the fault from the kernel, and `diagnostic`: its first; `reason`: the proof that the fault is harmless.
    `emulator`: what came of running the kernel's text with the fault in it, where somebody did."""

    fault: Fault
    verdict: Verdict
    by: str = ""
    diagnostic: Diagnostic | None = None
    reason: str = ""
    emulator: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One input of the value engine, with what the kernel itself makes of it."""

    launch: Launch
    inputs: tuple[Tensor, Tensor, Tensor]
    out: Tensor
    lse: Tensor | None


@dataclass(frozen=True, slots=True)
class Judge:
    """What the kernel itself does, against which its faults are held."""

    kernel: Kernel
    graph: str
    traces: tuple[Trace, ...]
    values: Callable[[Kernel], Diagnostic | None]
    """Where a kernel computes something else, if it does."""
    trials: tuple[Trial, ...] = ()


def make_judge(kernel: Kernel, launch_values: dict[str, int | float] | None = None) -> Judge:
    """Runs the kernel. Errors: what the engines say of it, since faults of a faulty kernel mean nothing."""
    trials = tuple(
        _trial(kernel, Launch(shape, values=launch_values or {}, want_lse=lse), slope)
        for shape, lse, slope in trial_launches(kernel)
    )
    return judge_of(kernel, lambda other: value_fault(trials, other), trials)


def judge_of(kernel: Kernel, values: Callable[[Kernel], Diagnostic | None], trials: tuple[Trial, ...] = ()) -> Judge:
    """Errors: what the order engine says of the kernel."""
    faults, traces = run_order(kernel)
    if faults:
        raise CuError(*faults)
    return Judge(kernel, graph_key(event_graph(kernel)), traces, values, trials)


def judge_fault(judge: Judge, fault: Fault) -> Judgement:
    """Who catches a fault; or why it is harmless: the same events, or events that give every tile the same life."""
    if fault.no_change is not None:
        return Judgement(fault, Verdict.NO_CHANGE, reason=fault.no_change)
    caught = _first(verify(fault.kernel))
    if caught is not None:
        return Judgement(fault, Verdict.CAUGHT, "verify", caught)
    diagnostics, traces = run_order(fault.kernel)
    caught = _first(diagnostics)
    if caught is not None:
        return Judgement(fault, Verdict.CAUGHT, "order", caught)
    caught = judge.values(fault.kernel)
    if caught is not None:
        return Judgement(fault, Verdict.CAUGHT, "values", caught)
    if graph_key(event_graph(fault.kernel)) == judge.graph:
        return Judgement(fault, Verdict.EQUIVALENT, reason="event graphs and values equal")
    if traces == judge.traces:
        reason = (
            "no race, and every tile goes through the same steps with the same operands in every scenario; values equal"
        )
        return Judgement(fault, Verdict.EQUIVALENT, reason=reason)
    return Judgement(fault, Verdict.MISSED, reason="values equal")


def _first(diagnostics: Sequence[Diagnostic]) -> Diagnostic | None:
    return diagnostics[0] if diagnostics else None


def value_fault(trials: Sequence[Trial], kernel: Kernel) -> Diagnostic | None:
    """The first trial whose result differs, as a diagnostic."""
    for trial in trials:
        try:
            out, lse = run_values(kernel, trial.inputs, trial.launch)
        except CuError as error:
            return error.diagnostics[0]
        for name, got, want in (("out", out, trial.out), ("lse", lse, trial.lse)):
            if want is None or got is None:
                continue
            differs = ~((got == want) | (got.isnan() & want.isnan()))
            if bool(differs.any()):
                where = ", ".join(map(str, differs.nonzero()[0].tolist()))
                return Diagnostic("CU316", f"{name}[{where}] is another value at {trial.launch.shape}", kernel.span)
    return None


# ---- inputs ----------------------------------------------------------------------------------------------------------

STEP: Final = 6.5
"""By how much scores rise from one key tile to the next, natural units: more than the 8 exponents of 2 that a maximum may lag,
little enough for the earlier tile to count."""


class Slope(StrEnum):
    """How scores run along the keys. Kernels walk key tiles from the right, so that falling scores are the ones that rise."""

    FLAT = "flat"
    RISING = "rising"
    FALLING = "falling"


def trial_launches(kernel: Kernel) -> tuple[tuple[Shape, bool, Slope], ...]:
    """Shapes in units of the kernel's own tiles, with and without LSE: several key tiles with a tail, two query tiles and more
    heads than key heads; whole key tiles; fewer keys than a tile; no keys; lengths at the edges of tiles."""
    queries, keys, dim = tile_sizes(kernel)
    several = Shape(2, 4, 2, queries + 22, 4 * keys - 3, dim)
    return (
        (several, True, Slope.FALLING),
        (several, True, Slope.FLAT),
        (several, False, Slope.RISING),
        (Shape(1, 3, 1, queries - 1, 3 * keys, dim), False, Slope.FALLING),
        (Shape(1, 2, 2, 2 * queries + 1, keys - 1, dim), True, Slope.FLAT),
        (Shape(1, 2, 1, 3, 0, dim), True, Slope.FLAT),
        *(
            (Shape(1, 2, 1, queries, length, dim), True, Slope.FLAT)
            for length in (1, keys, keys + 1, 2 * keys, 3 * keys - 1)
        ),
    )


def tile_sizes(kernel: Kernel) -> tuple[int, int, int]:
    """Rows of a query tile, rows of a key tile, head dim."""
    queries, keys = query_tile(kernel), key_tile(kernel)
    assert queries is not None and keys is not None
    return size_of(kernel, queries), size_of(kernel, keys), head_dim(kernel)


def sloped_inputs(shape: Shape, keys: int, dtype: torch.dtype, slope: Slope) -> tuple[Tensor, Tensor, Tensor]:
    """q [B, Hq, Lq, D], k and v [B, Hk, Lk, D]. Where scores rise or fall, by `STEP` per `keys` keys, v is the larger the less
    its weight, so that every key tile counts in the output."""
    random = torch.Generator().manual_seed(shape.Lq * 1000 + shape.Lk)
    q, k, v = (
        torch.randn(shape.B, heads, length, shape.D, generator=random)
        for heads, length in ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    )
    if slope is not Slope.FLAT:
        sign = 1.0 if slope is Slope.RISING else -1.0
        ramp = sign * STEP * (torch.arange(shape.Lk) - shape.Lk / 2) / keys
        q[..., 0] = 1.0
        k[..., 0] = ramp * shape.D**0.5
        v *= torch.exp2((-ramp * math.log2(math.e)).clamp(-14.0, 14.0))[:, None]
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _trial(kernel: Kernel, launch: Launch, slope: Slope) -> Trial:
    kind = next(f.type for f in kernel.params if f.name == "q")
    dtype = TORCH[kind.dtype] if isinstance(kind, Global | TensorMap) else TORCH[DType.BF16]
    inputs = sloped_inputs(launch.shape, tile_sizes(kernel)[1], dtype, slope)
    return Trial(launch, inputs, *run_values(kernel, inputs, launch))
