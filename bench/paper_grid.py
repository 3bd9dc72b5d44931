"""The cells of the paper's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.kept import Cell, Direction
from bench.lengths import shapes

EIGHT: Final = (
    "prefix_lm", "global_sliding_window", "share_question", "causal_blockwise", "relative_position", "relu", "sigmoid", "comb",
)  # fmt: skip
LENGTHS: Final = (1024, 2048, 4096, 8192, 16384)


def grid(
    directions: Sequence[Direction],
    variants: Sequence[str],
    lengths: Sequence[int],
    layouts: Sequence[tuple[int, int]],
    head_dim: int,
) -> list[Cell]:
    """Those of one adaptation follow each other."""
    given = list(shapes(lengths, layouts, (head_dim,)))
    return [Cell(direction, name, shape) for direction in directions for name in variants for shape in given]


def part_of(cells: Sequence[Cell], part: tuple[int, int]) -> Sequence[Cell]:
    """(2, 3) is the second third."""
    number, parts = part
    return cells[len(cells) * (number - 1) // parts : len(cells) * number // parts]
