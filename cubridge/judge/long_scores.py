"""Raw scores of chosen keys, and their values: near 0 and far from it, rising and falling from one key tile to the next, so that
running states rescale, stay behind and add up much. All are numbers of fp32."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import torch
from torch import Tensor

SPREAD: Final = 8.0
_SLOPES: Final = (0.0, 40.0, 500.0, -3.0, 0.0)
"""By how much scores rise from group to group: within the lag of a running maximum, past it, or not at all."""
COURSES: Final = ((0, 1), (0, -1), (1, 0), (-1, 0))
"""Scores of groups of keys, in steps: where they start, and how they go on."""
_STEPS: Final = (4, 17)
"""Least and largest step, as powers of 2: from what a lag of the reference lets pass to the largest products of fp16."""
_FAR: Final = tuple(sign * 2.0**n for n in (5, 8, 11, 14) for sign in (1, -1))
_FIRST_STEP: Final = 43.0
"""From the first group to all others: as much as a running maximum may stay behind by, in the units of raw scores."""
_LARGE: Final = (1.0, -300.0, 4096.0, 0.5, -70000.0, 3.0, 900.0, -1.0)


def levels(numbers: Sequence[float], random: Random) -> list[float]:
    """Scores to be near: numbers that a formula reads, as they are and before a scale, and powers of two."""
    near = [sign * n * scale for n in numbers for scale in (1.0, 8.0) if 4.0 <= n < 1e6 for sign in (1, -1)]
    return [*random.sample(near, min(len(near), len(_FAR))), *_FAR]


def of_one_group(points: int, rows: int, columns: int, levels: Sequence[float]) -> Tensor:
    """[points, 1, 1, rows, columns]: each point near a level, in turn."""
    at = torch.tensor([levels[p % len(levels)] for p in range(points)])
    return _spread(points, rows, columns, points) + at.view(-1, 1, 1, 1, 1)


def of_groups(points: int, groups: int, rows: int, columns: int, levels: Sequence[float]) -> list[Tensor]:
    """Of each group, as `of_one_group`: from group to group they rise by the slope of their point."""
    found: list[Tensor] = []
    for group in range(groups):
        at = [_slope(p) * group + (levels[p % len(levels)] if p % len(_SLOPES) == 4 else 0.0) for p in range(points)]
        found.append(_spread(points, rows, columns, group) + torch.tensor(at).view(-1, 1, 1, 1, 1))
    return found


def of_courses(points: int, groups: int, rows: int, columns: int) -> list[Tensor]:
    """Of each group, for each point once a course: scores rise, fall or stay far from 0, in each row by another step."""
    steps = torch.logspace(*_STEPS, points * rows, base=2.0)
    shuffled = steps[torch.randperm(len(steps), generator=torch.Generator().manual_seed(rows))]
    by_row = shuffled.view(points, 1, 1, rows, 1)
    return [
        torch.cat([_spread(points, rows, columns, n) + (start + n * slope) * by_row for start, slope in COURSES])
        for n in range(groups)
    ]


def of_large_sums(groups: int, rows: int, columns: int) -> list[Tensor]:
    """Of one point: all alike, but for the first group."""
    return [torch.full((1, 1, 1, rows, columns), _FIRST_STEP if group else 0.0) for group in range(groups)]


def _slope(point: int) -> float:
    return _SLOPES[point % len(_SLOPES)]


def _spread(points: int, rows: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((points, 1, 1, rows, columns), generator=generator) * SPREAD


def large_values(columns: int) -> Tensor:
    """[columns]: what each key's value is multiplied by."""
    return torch.tensor([_LARGE[c % len(_LARGE)] for c in range(columns)], dtype=torch.float64)
