"""Vector clocks of the order engine.

A clock is a list with one number per component. A warp has two: `control` (it has come this far) and `memory` (its accesses up
to here are done). Two, because a wgmma starts when all four warps of a warpgroup have issued it, which orders the control of
those warps but not their memory. Asynchronous work has components of its own: the copy groups and bulk groups of a warp, the
gemm groups of a warpgroup, the phases of an mbarrier; each completes in order, so that one number says what is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from cubridge.ir.nodes import Stmt

Clock: TypeAlias = list[int]


@dataclass(frozen=True, slots=True)
class Components:
    """Where the components lie in a clock. The control part comes first, so that it can be joined alone."""

    warps: int
    warpgroups: int
    barriers: int

    @property
    def size(self) -> int:
        return 4 * self.warps + self.warpgroups + self.barriers

    def control(self, warp: int) -> int:
        return warp

    def memory(self, warp: int) -> int:
        return self.warps + warp

    def copies(self, warp: int) -> int:
        return 2 * self.warps + warp

    def reductions(self, warp: int) -> int:
        return 3 * self.warps + warp

    def gemms(self, warpgroup: int) -> int:
        return 4 * self.warps + warpgroup

    def barrier(self, number: int) -> int:
        return 4 * self.warps + self.warpgroups + number

    def zero(self) -> Clock:
        return [0] * self.size


class Access(NamedTuple):
    """One access to shared memory: done for everyone whose clock has at least `time` in `component`."""

    component: int
    time: int
    stmt: Stmt
    who: str

    def before(self, clock: Clock) -> bool:
        return clock[self.component] >= self.time


def join(a: Clock, b: Clock) -> Clock:
    """What either knows."""
    return [x if x > y else y for x, y in zip(a, b, strict=True)]


def join_part(clock: Clock, part: Clock) -> None:
    """Take into `clock` what `part`, a clock's first components, knows."""
    for x, time in enumerate(part):
        if time > clock[x]:
            clock[x] = time
