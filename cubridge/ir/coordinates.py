"""Coordinates: the names by which a kernel body knows its thread and its block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cubridge.ir.hardware import WARPGROUP


def of_thread(thread: int) -> dict[str, int]:
    """The coordinates of one thread of a block; warpgroups that consume are numbered from 0, after the producer."""
    group = thread // WARPGROUP
    return {"thread": thread, "warpgroup": group, "consumer": group - 1}


def of_block(place: Sequence[Any], grid_x: Any) -> dict[str, Any]:
    """The coordinates of a block at (x, y, z): numbers, or arrays over many blocks."""
    return dict(zip(("block_x", "block_y", "block_z"), place, strict=True)) | {"grid_x": grid_x}


THREAD_NAMES: Final = (*of_thread(0), *of_block((0, 0, 0), 0))
