"""Full and causal attention over lengths, head layouts and head dims, beside the kernels of libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bench.build import KERNELS
from bench.kept import Cell
from bench.row import Row, columns_of
from bench.speed import OURS
from bench.table import render
from cubridge.ir.spec import Shape

VARIANTS: Final = ("full", "causal_bottom_right")
LAYOUTS: Final = ((32, 32), (64, 8), (128, 8))
"""Query and key heads."""
LENGTHS: Final = (512, 1024, 2048, 4096, 8192, 16384)
HEAD_DIMS: Final = (64, 128)
TOKENS: Final = 16384
"""Rows of all batch entries together."""


def shapes(
    lengths: Sequence[int] = LENGTHS,
    layouts: Sequence[tuple[int, int]] = LAYOUTS,
    head_dims: Sequence[int] = HEAD_DIMS,
    tokens: int = TOKENS,
) -> Iterator[Shape]:
    """Those of one head dim follow each other."""
    for dim in head_dims:
        for query, key in layouts:
            for length in lengths:
                yield Shape(max(1, tokens // length), query, key, length, length, dim)


def cells(wanted: Iterable[Shape], inputs: Sequence[str], variants: Sequence[str] = VARIANTS) -> list[Cell]:
    given = list(wanted)
    return [Cell("forward", name, shape, kind) for name in variants for shape in given for kind in inputs]


def lengths_table(measured: Sequence[tuple[Cell, Row]]) -> str:
    """TFLOP/s, and ours for the best peer's."""
    used = columns_of([row for _, row in measured])
    head = ("variant", "D", "heads", "B", "L", "inputs", *used, "of the best peer")
    lines = [
        (
            cell.variant, cell.shape.D, f"{cell.shape.Hq}/{cell.shape.Hk}", cell.shape.B, cell.shape.Lq, cell.inputs,
            *(row.tflops(c) for c in used), ratio(row),
        )
        for cell, row in measured
    ]  # fmt: skip
    return render(head, lines)


def ratio(row: Row) -> float | None:
    """How many times faster ours is than the fastest peer; None where there is no peer."""
    ours = row.tflops(OURS)
    peers = [t for c in columns_of([row]) if c not in KERNELS and (t := row.tflops(c))]
    return ours / max(peers) if ours and peers else None
