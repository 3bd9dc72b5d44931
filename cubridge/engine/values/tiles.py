"""Data of the value engine: register tiles over many blocks at once, in the layout that a warp's fragments have.

A register tile of one team is a tensor [blocks, warps, fragment rows, 8, columns]: row `(warp * fragment_rows + r) * 8 + x` of the
tile. So a fragment row r of `row_probs` is a slice, and the rows of one warp are two axes. A row vector has one column, a partial
sum four: one for each lane of a row, column c of a tile belonging to lane `c % 8 // 2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from cubridge.ir.nodes import Stmt
from cubridge.ir.types import DType

LANES = 4
FRAGMENT = 8
"""Rows of a fragment: 8 rows of 4 lanes."""

TORCH: dict[DType, torch.dtype] = {
    DType.BOOL: torch.bool, DType.I32: torch.int32, DType.I64: torch.int64, DType.F32: torch.float32,
    DType.BF16: torch.bfloat16, DType.F16: torch.float16,
}  # fmt: skip

Rows: TypeAlias = tuple[int, int, int, int]
"""Blocks, warps, fragment rows, 8."""


def poison(shape: tuple[int, ...], dtype: DType) -> Tensor:
    """What memory holds before it is written: NaN, or an integer that no index reaches."""
    return torch.full(shape, math.nan if dtype.is_float else -(2**30), dtype=TORCH[dtype])


@dataclass(slots=True)
class TeamTile:
    """A register tile of one team. `columns` is 1 for a row vector."""

    name: str
    dtype: DType
    rows: Rows
    columns: int
    stmt: Stmt
    data: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.data = poison((*self.rows, self.columns), self.dtype)

    @property
    def flat(self) -> Tensor:
        """[blocks, rows, columns]"""
        return self.data.reshape(self.rows[0], -1, self.columns)

    def set_flat(self, data: Tensor) -> None:
        self.data = data.reshape(*self.rows, self.columns)

    def spoil(self) -> None:
        self.data = poison((*self.rows, self.columns), self.dtype)


@dataclass(slots=True)
class RowValues:
    """The running state of the rows of one team, by field: [blocks, warps, fragment rows, 8, 1 or 4]; or, of all columns, what is
    kept of its scores."""

    fields: dict[str, Tensor]


def lane_of_column(columns: int) -> Tensor:
    """The lane that holds each column of a tile."""
    return torch.arange(columns) % 8 // 2


def spread_lanes(partial: Tensor, columns: int) -> Tensor:
    """A partial sum as each column's own lane sees it."""
    return partial[..., lane_of_column(columns)]


def partial_rowsum(x: Tensor) -> Tensor:
    """Sums over the columns of each lane: [.., columns] -> [.., 4]."""
    pairs = x.reshape(*x.shape[:-1], -1, LANES, 2)
    return pairs.sum(dim=(-3, -1))


def rowmax(x: Tensor) -> Tensor:
    return x.amax(dim=-1, keepdim=True)


def add_lanes(x: Tensor) -> Tensor:
    """The sum over the four lanes of a row; a value that all lanes have alike counts four times, as on a device."""
    return (x[..., :1] * 4.0) if x.shape[-1] == 1 else x.sum(dim=-1, keepdim=True)


def any_of_warp(x: Tensor) -> Tensor:
    """Is it true in some lane of the warp: [blocks, warps, 1, 1, 1]."""
    return x.amax(dim=(2, 3, 4), keepdim=True)


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise: the same number, or both NaN."""
    return (a == b) | (a.isnan() & b.isnan()) if a.is_floating_point() else a == b
