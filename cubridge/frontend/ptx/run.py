"""One run of a foreign kernel as everything here reads it: the steps of a block, its slices, what it does, its loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cubridge.frontend.ptx.events import Events, read_events
from cubridge.frontend.ptx.given import Given, address_name
from cubridge.frontend.ptx.layout import Coordinates, Layout
from cubridge.frontend.ptx.loops import KeyLoop
from cubridge.frontend.ptx.peeled import Walk, whole_loops
from cubridge.frontend.ptx.reach import Reach, is_shared, lanes_of
from cubridge.frontend.ptx.slices import Slices
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.block_events import Act
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract
from cubridge.ir.nodes import Name
from cubridge.ir.spec import Shape
from cubridge.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class Run:
    """`loop`: all iterations over key tiles."""

    shape: Shape
    trace: Trace
    slices: Slices
    layout: Layout
    events: Events
    loop: KeyLoop

    def acts(self, kind: str, tensor: str) -> list[tuple[int, Act]]:
        """Acts of one kind on a tensor, each with the iteration that it falls into."""
        return [
            (self.loop.number_at(at.step), at.act)
            for at in self.events.order
            if isinstance(at.act, Act) and at.act.kind.startswith(kind) and at.act.tile.tensor == tensor
        ]

    def code_of_tiles(self) -> list[int]:
        """By key tile, the first instruction that reads its values."""
        reads = [at for at in self.events.order if isinstance(at.act, Act) and at.act.kind == "read"]
        return [self.trace.steps[at.step].at for at in reads if isinstance(at.act, Act) and at.act.tile.tensor == "v"]

    def coordinates(self, tensor: str, row: int, first: int = 0) -> Coordinates:
        """Of a row of a tensor, from an address that the run moves from or to, at step `first` or behind it."""
        for index in range(first, len(self.trace.steps)):
            step = self.trace.steps[index]
            name = self.trace.code[step.at].name
            which = 1 if name.startswith("cp.async.c") else 0
            if len(step.addresses) <= which or not name.startswith(("ld.", "st.", "cp.async.c")):
                continue
            for lane in lanes_of(step.mask):
                address = int(step.addresses[which][lane])
                if (which == 0 and is_shared(name, address)) or self.layout.window(address) != tensor:
                    continue
                if self.layout.place(tensor, address).row == row:
                    value = self.slices.source(index, which, lane)
                    if isinstance(value, Poly):
                        return self.layout.coordinates(tensor, value - Poly.atom(Name(address_name(tensor))))
        raise CuError(
            Diagnostic("CU853", f"no address shows where row {row} of `{tensor}` lies", self.trace.code[0].span)
        )


@dataclass(frozen=True, slots=True)
class Followed:
    """A run of which it is not yet known where its iterations begin: that shows a longer one."""

    shape: Shape
    slices: Slices
    layout: Layout
    walk: Walk

    @staticmethod
    def of(trace: Trace, contract: ForeignContract, shape: Shape, given: Given) -> Followed:
        """Errors: CU850 to CU853."""
        slices = Slices(Reach(trace), given)
        layout = Layout.of(contract, shape, trace.windows)
        return Followed(shape, slices, layout, Walk.of(trace, read_events(slices, layout)))


def runs_of(followed: Sequence[Followed]) -> list[Run]:
    """Errors: CU853."""
    loops = whole_loops([f.walk for f in followed])
    return [
        Run(f.shape, f.walk.trace, f.slices, f.layout, f.walk.events, loop)
        for f, loop in zip(followed, loops, strict=True)
    ]
