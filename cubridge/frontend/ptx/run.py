"""One run of a foreign kernel as everything here reads it: the steps of a block, its slices, what it does, its loop."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.frontend.ptx.events import Events, read_events
from cubridge.frontend.ptx.layout import Coordinates, Layout
from cubridge.frontend.ptx.loops import KeyLoop, find_loop
from cubridge.frontend.ptx.reach import Reach, is_shared, lanes_of
from cubridge.frontend.ptx.slices import Given, Slices, address_name
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.block_events import Act
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract
from cubridge.ir.nodes import Name
from cubridge.ir.spec import Shape
from cubridge.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class Run:
    """`loop`: over key tiles; None where the block visits too few to show one."""

    shape: Shape
    trace: Trace
    slices: Slices
    layout: Layout
    events: Events
    loop: KeyLoop

    @staticmethod
    def of(trace: Trace, contract: ForeignContract, shape: Shape, given: Given) -> Run:
        """Errors: CU850 to CU853."""
        slices = Slices(Reach(trace), given)
        layout = Layout.of(contract, shape, trace.windows)
        events = read_events(slices, layout)
        values = [
            at.step
            for at in events.order
            if isinstance(at.act, Act) and at.act.kind == "read" and at.act.tile.tensor == "v"
        ]
        loop = find_loop(trace, values)
        if loop is None:
            raise CuError(Diagnostic("CU853", "the run has no loop in which values are read", trace.code[0].span))
        return Run(shape, trace, slices, layout, events, loop)

    def acts(self, kind: str, tensor: str) -> list[tuple[int, Act]]:
        """Acts of one kind on a tensor, each with the iteration that it falls into."""
        return [
            (self.loop.number_at(at.step), at.act)
            for at in self.events.order
            if isinstance(at.act, Act) and at.act.kind.startswith(kind) and at.act.tile.tensor == tensor
        ]

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
