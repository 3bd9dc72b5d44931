"""What was measured of the paper's grid, as text and as data."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bench.build import KERNELS
from bench.kept import Cell, Setup
from bench.lengths import TOKENS, lengths_table, ratio
from bench.row import Row, columns_of, faults_at
from bench.speed import OURS
from bench.table import render

Measured = Sequence[tuple[Cell, Row]]


def paper_text(setup: Setup, measured: Measured) -> str:
    """A table for each direction and head layout, then every time, then what is missing."""
    parts = [
        f"{setup.machine}; bf16. TFLOP/s of ours ({OURS}) over visible elements, medians, and how many times those of the "
        f"fastest peer of the same cell; {TOKENS} rows in all batch entries together."
    ]
    for title, rows in by(measured, lambda cell: f"{cell.direction}, {layout(cell)} heads").items():
        parts += [f"## {title.capitalize()}", speedups(rows)]
    for direction, rows in by(measured, lambda cell: cell.direction).items():
        parts += [f"## {direction.capitalize()}, TFLOP/s of all", lengths_table(rows)]
    if faults := list(faults_by_kind(measured)):
        parts += ["## Missing, or not the same", "\n".join(f"- {fault}" for fault in faults)]
    return "\n\n".join(parts) + "\n"


def by(measured: Measured, key: Callable[[Cell], str]) -> dict[str, Measured]:
    groups: dict[str, list[tuple[Cell, Row]]] = defaultdict(list)
    for cell, row in measured:
        groups[key(cell)].append((cell, row))
    return {**groups}


def layout(cell: Cell) -> str:
    return f"{cell.shape.Hq}/{cell.shape.Hk}"


def speedups(rows: Measured) -> str:
    """Variants by lengths; below them the geometric mean of the ratios of a length."""
    lengths = sorted({cell.shape.Lq for cell, _ in rows})
    at = {(cell.variant, cell.shape.Lq): row for cell, row in rows}
    names = dict.fromkeys(cell.variant for cell, _ in rows)
    lines = [(name, *(_with_ratio(at.get((name, length))) for length in lengths)) for name in names]
    means = [_mean(ratio(row) for cell, row in rows if cell.shape.Lq == length) for length in lengths]
    return render(("variant", *map(short, lengths)), [*lines, ("geometric mean", *means)])


def short(length: int) -> str:
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)


def _with_ratio(row: Row | None) -> str:
    if row is None or (ours := row.tflops(OURS)) is None:
        return ""
    times = ratio(row)
    return f"{ours:.0f}" if times is None else f"{ours:.0f} ({times:.2f}x)"


def _mean(ratios: Iterable[float | None]) -> str:
    known = [r for r in ratios if r]
    return f"{statistics.geometric_mean(known):.2f}x" if known else ""


def faults_by_kind(measured: Measured) -> Iterator[str]:
    """Each kind once, with the number of its cells and the first."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for cell, row in measured:
        for column, reason in faults_at(row).items():
            kind = reason.partition(":")[0].partition(" by ")[0]
            kinds[f"{column or 'all'}, {kind}"].append(f"{cell}: {reason}")
    for kind, cells in kinds.items():
        yield f"{kind}: {len(cells)} of {len(measured)} cells, first {cells[0]}"


def ours_ran(measured: Measured) -> bool:
    """Both kernels forward, one backward; peers may fail."""
    return all(
        name in row.timings and row.timings[name].fault is None
        for cell, row in measured
        for name in (KERNELS if cell.direction == "forward" else (OURS,))
    )


def as_data(setup: Setup, measured: Measured) -> dict[str, Any]:
    return {
        **asdict(setup),
        "cells": [
            {
                **asdict(cell),
                "tflops": {c: row.tflops(c) for c in columns_of([row])},
                "times_of_best_peer": ratio(row),
                "timings_ms": {name: asdict(t) for name, t in row.timings.items()},
                "difference_from_ours": dict(row.differences),
                "fault": row.fault,
            }
            for cell, row in measured
        ],
    }
