"""Rules: mbarriers are initialised, once and visibly, for as many arrivals as they get; each is waited on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cubridge.ir.body_types import constant_int, slot_count
from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.nodes import (
    Barrier,
    BarrierArrive,
    BarrierExpect,
    BarrierInit,
    BarrierInitFence,
    BarrierWait,
    BlockSync,
    CopyAsync,
    Field,
    Stmt,
)
from cubridge.ir.operands import shared_name, slot_index
from cubridge.ir.workers import Placed, Workers


def check_barriers(workers: Workers) -> Iterable[Diagnostic]:
    """CU210 for a barrier that is not initialised, not once or not visibly; CU211 for arrivals that its count does not fit."""
    for item in workers.kernel.shared:
        if isinstance(item.type, Barrier):
            yield from _check_slots(workers, item)
    yield from _check_visible(workers)


@dataclass(frozen=True, slots=True)
class _Init:
    stmt: BarrierInit
    arrivals: int


def _check_slots(workers: Workers, item: Field) -> Iterator[Diagnostic]:
    count = slot_count(workers.kernel, item.type)
    inits: dict[int, _Init] = {}
    arrivers: dict[int, set[int]] = {slot: set() for slot in range(count)}
    waits, places = [], []
    for placed in workers.placed:
        match placed.stmt:
            case BarrierInit(barrier, arrivals) if shared_name(barrier) == item.name:
                init = _Init(placed.stmt, constant_int(workers.kernel, arrivals))
                yield from _record_init(workers, placed, init, inits, count)
            case BarrierExpect(barrier) | BarrierArrive(barrier) if shared_name(barrier) == item.name:
                places.append(Note("arrivals here", placed.stmt.span))
                for thread in placed.threads:
                    for slot in workers.slots(slot_index(barrier), placed, thread, count):
                        arrivers.setdefault(slot, set()).add(thread)
            case BarrierWait(barrier) if shared_name(barrier) == item.name:
                waits.append(placed.stmt)
            case _:
                pass
    yield from _compare(item, count, inits, arrivers, tuple(places))
    if not waits:
        yield Diagnostic("CU211", f"nothing waits on `{item.name}`", item.span)


def _record_init(
    workers: Workers, placed: Placed, init: _Init, inits: dict[int, _Init], count: int
) -> Iterator[Diagnostic]:
    if len(placed.threads) != 1:
        message = f"{len(placed.threads)} threads initialise this barrier"
        yield Diagnostic("CU210", message, placed.stmt.span, help="let one thread do it: `if thread == 0:`")
    for thread in placed.threads:
        for slot in workers.slots(slot_index(init.stmt.barrier), placed, thread, count):
            if slot in inits and inits[slot].stmt is not init.stmt:
                note = Note("the first time", inits[slot].stmt.span)
                yield Diagnostic("CU210", "this barrier is initialised twice", init.stmt.span, (note,))
            inits[slot] = init


def _compare(
    item: Field, count: int, inits: dict[int, _Init], arrivers: dict[int, set[int]], places: tuple[Note, ...]
) -> Iterator[Diagnostic]:
    for slot in range(count):
        which = f"`{item.name}`" if count == 1 else f"`{item.name}[{slot}]`"
        if slot not in inits:
            yield Diagnostic("CU210", f"{which} is never initialised", item.span)
        elif len(arrivers[slot]) != inits[slot].arrivals:
            message = (
                f"{which} completes after {inits[slot].arrivals} arrivals, and {len(arrivers[slot])} threads arrive"
            )
            yield Diagnostic("CU211", message, inits[slot].stmt.span, places)


def _check_visible(workers: Workers) -> Iterator[Diagnostic]:
    """Initialisation, then a fence by the same thread, then a meeting of the block, then all other use."""
    waiting: dict[int, Stmt] = {}  # thread -> an initialisation that no fence follows yet
    fenced: Stmt | None = None
    for placed in workers.placed:
        match placed.stmt:
            case BarrierInit():
                waiting |= dict.fromkeys(placed.threads, placed.stmt)
                fenced = placed.stmt
            case BarrierInitFence():
                waiting = {t: s for t, s in waiting.items() if t not in placed.threads}
            case BlockSync() if placed.threads == workers.everyone:
                if waiting:
                    yield _unfenced(next(iter(waiting.values())))
                    waiting = {}
                fenced = None
            case BarrierExpect() | BarrierArrive() | BarrierWait() | CopyAsync() if fenced is not None:
                help = "let the block meet after the initialisation: `block_sync()`"
                note = Note("the last initialisation", fenced.span)
                yield Diagnostic(
                    "CU210", "a barrier is used before all threads see it initialised", placed.stmt.span, (note,), help
                )
                return
            case _:
                pass
    if waiting:
        yield _unfenced(next(iter(waiting.values())))


def _unfenced(stmt: Stmt) -> Diagnostic:
    help = "`barrier_init_fence()` after the last initialisation, before the block meets"
    return Diagnostic(
        "CU210", "no fence makes this initialisation visible to asynchronous copies", stmt.span, help=help
    )
