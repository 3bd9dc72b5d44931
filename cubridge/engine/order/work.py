"""Work tiles and their sequences, of the order engine: opaque tokens, so that trip counts are the scenario's and not a region's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

STEPS: Final = 64
"""Key tile numbers that one work tile has to itself; no scenario has as many steps."""


@dataclass(frozen=True, slots=True)
class Work:
    """A query tile. Its coordinates are numbers that no other tile, and no other coordinate, has."""

    index: int

    @property
    def b(self) -> int:
        return 1_000_000 + self.index

    @property
    def h(self) -> int:
        return 2_000_000 + self.index

    @property
    def hk(self) -> int:
        return 3_000_000 + self.index

    @property
    def q_start(self) -> int:
        return 4_000_000 + 10_000 * self.index

    @property
    def kv_start(self) -> int:
        return self.q_start


@dataclass(slots=True, eq=False)
class KeyWork:
    """A key tile as one warp has it: it goes through the query heads."""

    work: Work
    h: int
    b: int
    hk: int
    kv_start: int

    @staticmethod
    def of(work: Work) -> KeyWork:
        return KeyWork(work, work.h, work.b, work.hk, work.kv_start)


def named(value: object) -> str:
    """A number as messages say it: that of a coordinate by its name."""
    if isinstance(value, int):
        for name, first in (("b", 1_000_000), ("h", 2_000_000), ("hk", 3_000_000)):
            if first <= value < first + 1_000_000:
                return f"{name} of work tile {value - first}"
        if 4_000_000 <= value < 5_000_000:
            tile, offset = divmod(value - 4_000_000, 10_000)
            return f"q_start{f' + {offset}' if offset else ''} of work tile {tile}"
    return str(value)


@dataclass(frozen=True, slots=True)
class Keys:
    """The sequence of a work tile: steps from the right, as the forward kernels walk."""

    work: Work
    count: int

    def tile(self, t: int) -> int:
        return STEPS * (self.work.index + 1) + self.count - 1 - t

    def masked(self, t: int) -> bool:
        """First and last step, and every third: steps with and without the mask, in both orders."""
        return t == 0 or t % 3 == 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """One launch as one block sees it. `counts`: key tiles of the work tiles that this block gets, in turn.

    `dealt`: how the block gets its next work tile, from the counters or by equal shares; the rest goes to other blocks."""

    counts: tuple[int, ...]
    lse: bool
    dealt: bool
    descending: bool = False
    one_step: bool = False
    land_at_once: bool = False

    BLOCKS: ClassVar[int] = 2
    BLOCK: ClassVar[int] = 1

    def work(self, turn: int) -> int:
        """Number of the work tile of this block's turn; past the last turn a number past all work."""
        if turn == 0 and self.counts:
            return self.BLOCK
        if turn >= len(self.counts):
            return self.total
        return self.BLOCKS + self.ticket(turn - 1) if self.dealt else self.BLOCK + turn * self.BLOCKS

    def ticket(self, draw: int) -> int:
        """What the counters give at a draw: other blocks draw in between."""
        return draw * 3 // 2

    @property
    def total(self) -> int:
        """Work tiles of the launch. Without any for this block, the first number it would get is the first past the end."""
        return self.work(len(self.counts) - 1) + 1 if self.counts else self.BLOCK
