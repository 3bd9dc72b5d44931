"""What one block does to memory and between its threads, whoever tells it: a run of a kernel text, or CuIR on an engine.

Commits, waits and barriers, which all warps pass alike, cut it into intervals; inside of one, the order of copies, reads and
stores does not matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cubridge.ir.source import NOWHERE, Span


@dataclass(frozen=True, slots=True, order=True)
class TileOf:
    """Rows [row, row + rows) of tensor[b, h]; `kept` of them lie inside."""

    tensor: str
    b: int
    h: int
    row: int
    rows: int
    kept: int

    def __str__(self) -> str:
        return f"{self.tensor}[{self.b}, {self.h}] rows {self.row} to {self.row + self.kept - 1}"


@dataclass(frozen=True, slots=True, order=True)
class Act:
    """`kind`: "copy" by the threads themselves, "copy_async", "read" of a tile in shared memory, "store". `place`: the slot that a
    tile lies in, 0 of global memory; slots are told apart by a number of whoever tells."""

    kind: Literal["copy", "copy_async", "read", "store"]
    tile: TileOf
    place: int = 0
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.kind} of {self.tile}"


@dataclass(frozen=True, slots=True)
class Turn:
    """`kind`: "commit", "wait_group" with `count` groups left in flight, "block_sync"."""

    kind: Literal["commit", "wait_group", "block_sync"]
    count: int = 0
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return f"wait_group({self.count})" if self.kind == "wait_group" else f"{self.kind}()"


@dataclass(frozen=True, slots=True)
class Interval:
    """What is done before `end`; None at the end of the block."""

    acts: tuple[Act, ...]
    end: Turn | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two tellings part: what the first has there and the second has not, or None."""

    message: str
    span: Span


def difference(run: tuple[Interval, ...], other: tuple[Interval, ...]) -> Difference | None:
    """The first interval in which a run of a text and another telling of the block differ. Slots are the same where they go
    together throughout."""
    slots: dict[int, int] = {}
    for mine, theirs in zip(run, other, strict=False):
        found = _acts_differ(mine, theirs, slots) or _ends_differ(mine, theirs)
        if found is not None:
            return found
    if len(run) == len(other):
        return None
    longer, whose = (run, "the run") if len(run) > len(other) else (other, "the CuIR")
    end = longer[min(len(run), len(other)) - 1].end
    return Difference(f"{whose} goes on after {end}", end.span if end is not None else NOWHERE)


def _acts_differ(mine: Interval, theirs: Interval, slots: dict[int, int]) -> Difference | None:
    left = {(a.kind, a.tile): a for a in mine.acts}
    right = {(a.kind, a.tile): a for a in theirs.acts}
    for acts, others, whose in ((left, right, "the run has"), (right, left, "the CuIR has")):
        for key, act in acts.items():
            if key not in others:
                return Difference(f"{whose} a {act} before {mine.end or 'the end'}, and the other has none", act.span)
    for key, act in left.items():
        if act.kind != "store" and slots.setdefault(act.place, right[key].place) != right[key].place:
            return Difference(f"the {act} is in another slot than the CuIR says", act.span)
    return None


def _ends_differ(mine: Interval, theirs: Interval) -> Difference | None:
    if mine.end == theirs.end:
        return None
    end = mine.end or theirs.end
    message = f"the run has {mine.end or 'its end'} where the CuIR has {theirs.end or 'its end'}"
    return Difference(message, NOWHERE if end is None else end.span)
