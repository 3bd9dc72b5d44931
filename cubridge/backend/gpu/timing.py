"""Medians of candidates timed side by side: every round times each of them once, in a new random order.

One card runs at one power limit, and its clock drifts; candidates that alternate share that, candidates timed one after
the other do not. Times are of the device, by events around a few launches."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

SAMPLE_MS = 20.0
"""A sample holds as many launches as fit into this time, so that neither the events' resolution nor what the
candidate before it left in caches and clocks counts."""


class Clock(Protocol):
    """Milliseconds that `count` calls of `work` take on the device."""

    def __call__(self, work: Callable[[], object], count: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds a call: the median of the samples and their extremes. `fault`: why there are none."""

    median: float = float("nan")
    least: float = float("nan")
    most: float = float("nan")
    fault: str | None = None


def interleave(
    candidates: Mapping[str, Callable[[], object]],
    clock: Clock,
    *,
    rounds: int = 7,
    seed: int = 0,
    told: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Time every candidate `rounds` times; `told` hears of each. A candidate that raises, at once or later, is left
    out and says why."""
    counts: dict[str, int] = {}
    faults: dict[str, str] = {}
    for name, work in candidates.items():
        try:
            clock(work, 1)  # compiles, allocates, loads
            counts[name] = max(1, int(SAMPLE_MS / max(clock(work, 1), 1e-3)))
        except Exception as error:  # a peer may fail in any way; it is reported beside the others
            faults[name] = _reason(error)
    samples: dict[str, list[float]] = {name: [] for name in counts}
    order, shuffle = list(counts), random.Random(seed).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in [n for n in order if n not in faults]:
            if told is not None:
                told(name)
            try:
                samples[name].append(clock(candidates[name], counts[name]) / counts[name])
            except Exception as error:
                faults[name] = _reason(error)
    timed = {n: Timing(statistics.median(s), min(s), max(s)) for n, s in samples.items() if n not in faults}
    return {n: timed[n] if n in timed else Timing(fault=faults[n]) for n in candidates}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def cuda_clock(work: Callable[[], object], count: int) -> float:
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
