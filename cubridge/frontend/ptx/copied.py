"""Tiles in shared memory by the copies that fill them, and rows past the end of a tensor that no copy fills: they hold what was
there, and a mask hides their scores. CuIR has zeros there; outputs at such lengths are compared."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cubridge.frontend.ptx.layout import Layout, Place
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import Span
from cubridge.ir.trace import Operation


@dataclass(slots=True)
class Copied:
    """The copies of one tensor between two turns: the granules that they fill, None those that become zero."""

    tensor: str
    interval: int
    asynchronous: bool
    span: Span
    granules: dict[int, Place | None] = field(default_factory=dict[int, Place | None])
    read: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By interval, the granules that are read."""
    read_span: dict[int, Span] = field(default_factory=dict[int, Span])
    past: set[int] = field(default_factory=set[int])
    """Granules of rows past the end, which nothing fills."""

    @property
    def first(self) -> int:
        return next(iter(self.granules))

    @property
    def whole(self) -> set[int]:
        return {*self.granules, *self.past}


def is_stale(copies: Collection[Copied], copied: Copied, at: int, interval: int) -> bool:
    """Has a later copy into the same slot, of fewer rows, left a granule as it was."""
    later = (c for c in copies if c.tensor == copied.tensor and copied.interval < c.interval < interval)
    return any(at not in c.granules and (c.first in copied.granules or copied.first in c.granules) for c in later)


def give_past(copies: Collection[Copied], layout: Layout, interval: int, granules: Mapping[int, Operation]) -> None:
    """Granules that are read and not filled: of the tile that ends past its length, is read with them and lies next to them, below.
    Errors: CU851."""
    now = [c for c in copies if interval in c.read and _ends_past(c, layout)]
    starts = sorted((at, n) for n, copied in enumerate(now) for at in copied.granules)
    for at, operation in sorted(granules.items()):
        below = bisect_left(starts, (at, 0)) - 1
        if below < 0:
            raise CuError(Diagnostic("CU851", "shared memory is read that no copy has filled", operation.span))
        copied = now[starts[below][1]]
        copied.past.add(at)
        copied.read[interval].add(at)


def _ends_past(copied: Copied, layout: Layout) -> bool:
    rows = [place.row for place in copied.granules.values() if place is not None]
    return bool(rows) and max(rows) + 1 == layout.length(copied.tensor)
