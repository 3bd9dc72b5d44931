"""One line of a table of times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.candidates import COLUMNS

if TYPE_CHECKING:
    from cubridge.backend.gpu.timing import Timing

AGREES: Final = 0.02
"""Results in half precision that differ by less, in the norm, are of the same attention."""


@dataclass(frozen=True, slots=True)
class Row:
    """Times of one variant by column, and the operations of the visible elements. `differences`: of the results of each column from
    ours. `fault`: why there are no times at all."""

    variant: str
    shape: str
    flops: float
    timings: Mapping[str, Timing]
    differences: Mapping[str, float] = field(default_factory=dict[str, float])
    fault: str | None = None

    def tflops(self, column: str) -> float | None:
        timing = self.timings.get(column)
        if timing is None or math.isnan(timing.median):
            return None
        return self.flops / timing.median / 1e9


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Those that some row has."""
    return [c for c in COLUMNS if any(c in r.timings for r in rows)]


def faults_of(rows: Sequence[Row]) -> list[str]:
    """What is missing in a table, and what was timed but computes something else, and why."""
    return [f"{r.variant} {r.shape}{c and ' '}{c}: {reason}" for r in rows for c, reason in faults_at(r).items()]


def faults_at(row: Row) -> dict[str, str]:
    """By column; of the whole row, by ""."""
    whole = {"": row.fault} if row.fault else {}
    missing = {name: t.fault for name, t in row.timings.items() if t.fault}
    differ = {n: f"differs from ours by {100 * d:.2g} %" for n, d in row.differences.items() if not d < AGREES}
    return whole | missing | differ
