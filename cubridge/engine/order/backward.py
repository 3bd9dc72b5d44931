"""Region calls and stores of backward kernels in the order engine: what they touch. What tiles hold the value engine judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubridge.engine.core.operands import GlobalRef, SharedRef, Value, fault
from cubridge.engine.order.steps import local_tile
from cubridge.engine.order.tiles import RowTile, WarpTile
from cubridge.engine.order.work import KeyWork
from cubridge.ir.diagnostics import Note
from cubridge.ir.nodes import Kernel, RegionCall, Stmt, Store
from cubridge.ir.region_types import FAMILY_RULES
from cubridge.ir.walk import field_of, walk

if TYPE_CHECKING:
    from cubridge.engine.order.machine import OrderMachine, Warp


def region_access(machine: OrderMachine, warp: Warp, args: tuple[Value, ...], stmt: RegionCall) -> None:
    """Every tile is read, and those that the region changes are written."""
    names = machine.family.regions.get(stmt.region, ())
    if len(names) != len(args):
        raise fault("CU301", f"`{stmt.region}` is not called so in a kernel body", stmt)
    writes = FAMILY_RULES[machine.family.name][stmt.region].writes
    for name, value in zip(names, args, strict=True):
        if isinstance(value, WarpTile):
            local_tile(warp, value, stmt, read=True, write=name in writes)


def store_of_work(machine: OrderMachine, warp: Warp, ref: GlobalRef, row: Value, src: WarpTile, stmt: Stmt) -> None:
    """A tile goes to the batch and the first row of the last work tile that this warp took, once."""
    taken = machine.turns.get(warp.label)
    if not taken:
        raise fault("CU264", f"`{src.name}` is stored, and no work tile was taken", stmt)
    work = taken[-1]
    if ref.indices[0] != work.b or row != work.q_start:
        raise fault("CU264", f"`{src.name}` is stored elsewhere than at its batch and rows", stmt)
    if (work, ref.name) in warp.stored:
        note = Note("first here", warp.stored[work, ref.name].span)
        raise fault("CU263", f"`{ref.name}` is stored twice for one work tile", stmt, note)
    warp.stored[work, ref.name] = stmt
    if not any(work == done for done, _ in warp.finished):
        warp.finished.append((work, stmt))


def noted(value: Value) -> object:
    """An operand as traces have it: tiles by name, slots of shared memory with the part that is meant, work by its number."""
    match value:
        case WarpTile(name=name):
            return name
        case SharedRef(name, slot, _, window):
            return name, slot, window
        case GlobalRef(name, indices):
            return name, *indices
        case KeyWork(work, h):
            return work.index, h
        case RowTile():
            return "state"
        case _:
            return value


def stored_names(kernel: Kernel) -> tuple[str, ...]:
    """The tensors that a kernel stores to."""
    return tuple(dict.fromkeys(field_of(n.dst) for n in walk(kernel) if isinstance(n, Store)))
