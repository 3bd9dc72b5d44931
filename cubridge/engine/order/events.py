"""What happens in one launch of a kernel and what waits for what: the order engine's run, written down as events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import networkx

from cubridge.engine.core.code import compile_body
from cubridge.engine.core.operands import SharedRef, Value
from cubridge.engine.core.scheduler import run_agents
from cubridge.engine.core.sync import MBarrier, Meeting
from cubridge.engine.order.engine import sizes
from cubridge.engine.order.machine import Warp
from cubridge.engine.order.run import OrderRun
from cubridge.engine.order.tiles import WarpTile
from cubridge.engine.order.work import Scenario
from cubridge.ir.hardware import WARP, WARPGROUP
from cubridge.ir.nodes import (
    Cast,
    CopyAsync,
    Counters,
    CpAsyncWait,
    Gemm,
    Kernel,
    NamedArrive,
    RegionCall,
    RegisterTile,
    Stmt,
    Store,
    Tile,
    WgmmaWait,
)  # fmt: skip
from cubridge.ir.workers import takes_several

WARPS: Final = WARPGROUP // WARP
"""Of a warpgroup."""


class Kind(StrEnum):
    """What an event is. Of asynchronous work there are two: its start by a worker, and the work itself."""

    START = "start"
    COPY = "copy"
    GEMM = "gemm"
    REGION = "region"
    SIGNAL = "signal"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `worker`: a warp, which stands for others of its warpgroup that do the same; `apart`: done beside it, by copy
    engine or tensor cores. `amount`: bytes of a copy, multiplications of a gemm, elements of a region. `after`: numbers of the
    events that it waits for."""

    number: int
    worker: int
    kind: Kind
    stmt: Stmt
    after: tuple[int, ...]
    apart: bool = False
    amount: int = 0


def kernel_events(kernel: Kernel, counts: tuple[int, ...] = (4, 3)) -> tuple[Event, ...]:
    """The events of a block whose work tiles have `counts` key tiles, in an order that respects `after`.
    A kernel whose blocks take one work tile has the first alone. Errors: the first order fault, as `check_order` names it."""
    several = takes_several(kernel)
    dealt = several and any(isinstance(f.type, Counters) for f in kernel.params)
    scenario = Scenario(counts if several else counts[:1], lse=True, dealt=dealt)
    run = _Recorded(kernel, compile_body(kernel, _Recorded), scenario, sizes(kernel, scenario))
    run_agents(run)
    run.check_end()
    return _by_worker(run)


class _Recorded(OrderRun):
    """The order engine, taking notes: `noted` has the events of every warp."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # pyright: ignore[reportArgumentType]
        self.noted: list[Event] = []
        self.last: dict[int, int] = {}  # warp -> its last event
        self.signals: dict[tuple[str, int], list[int]] = {}  # round of a barrier -> what completes it
        self.flights: dict[tuple[str, int, int], list[int]] = {}  # copies or gemms, warp, group -> work in it

    def note(self, agent: Warp, kind: Kind, stmt: Stmt, after: list[int], amount: int = 0) -> int:
        """A step of `agent`, after the one before it."""
        before = [self.last[agent.index]] if agent.index in self.last else []
        number = self._add(agent, kind, stmt, before + after, amount, apart=False)
        self.last[agent.index] = number
        return number

    def _add(self, agent: Warp, kind: Kind, stmt: Stmt, after: list[int], amount: int, *, apart: bool) -> int:
        number = len(self.noted)
        needs = tuple(dict.fromkeys(after))
        self.noted.append(Event(number, agent.index, kind, stmt, needs, apart, amount))
        return number

    def fly(self, agent: Warp, kind: Kind, stmt: Stmt, amount: int, after: list[int]) -> int:
        """Work that `agent` starts and that goes on beside it."""
        return self._add(agent, kind, stmt, [self.note(agent, Kind.START, stmt, []), *after], amount, apart=True)

    # ---- barriers ----

    def arrived(self, agent: Warp, barrier: MBarrier, stmt: Stmt) -> None:
        super().arrived(agent, barrier, stmt)
        self.signals.setdefault((barrier.label, barrier.phase), []).append(self.note(agent, Kind.SIGNAL, stmt, []))

    def passes(self, agent: Warp, barrier: MBarrier, stmt: Stmt) -> None:
        super().passes(agent, barrier, stmt)
        self.note(agent, Kind.WAIT, stmt, self.signals.get((barrier.label, barrier.phase - 1), []))

    def met(self, agent: Warp, meeting: Meeting, stmt: Stmt) -> None:
        super().met(agent, meeting, stmt)
        if isinstance(stmt, NamedArrive):
            self.note(agent, Kind.SIGNAL, stmt, [])
        if agent.index in self.last:
            self.signals.setdefault((meeting.label, meeting.generation), []).append(self.last[agent.index])

    def leaves(self, agent: Warp, meeting: Meeting, generation: int) -> None:
        super().leaves(agent, meeting, generation)
        self.note(agent, Kind.WAIT, self.here(agent), self.signals.get((meeting.label, generation), []))

    # ---- copies and gemms ----

    def copy_async(self, agent: Warp, stmt: CopyAsync, dst: Value, src: Value, row: Value, signal: Value) -> None:
        super().copy_async(agent, stmt, dst, src, row, signal)
        flight = self.fly(agent, Kind.COPY, stmt, self.slot_bytes(dst.name, dst.node), [])
        if signal is None:
            self.flights.setdefault(("copies", agent.index, agent.closed + 1), []).append(flight)
        else:
            barrier = self.barrier(signal, stmt)
            self.signals.setdefault((barrier.label, barrier.phase), []).append(flight)

    def wait_group(self, agent: Warp, stmt: CpAsyncWait, pending: Value) -> None:
        before = agent.waited_copies
        super().wait_group(agent, stmt, pending)
        self.note(agent, Kind.WAIT, stmt, self._landed("copies", agent, before, agent.waited_copies))

    def gemm(self, agent: Warp, stmt: Gemm, dst: Value, a: Value, b: Value) -> None:
        super().gemm(agent, stmt, dst, a, b)
        amount = self._elements(dst) * self._columns(a)
        if not stmt.asynchronous:
            self.note(agent, Kind.GEMM, stmt, [], amount)
            return
        flights = self.flights.setdefault(("gemms", agent.index, agent.committed + 1), [])
        earlier = flights or self.flights.get(("gemms", agent.index, agent.committed), [])
        flights.append(self.fly(agent, Kind.GEMM, stmt, amount, earlier[-1:]))

    def wgmma_wait(self, agent: Warp, stmt: WgmmaWait, pending: Value) -> bool | None:
        before = agent.waited
        result = super().wgmma_wait(agent, stmt, pending)
        if result is None:
            self.note(agent, Kind.WAIT, stmt, self._landed("gemms", agent, before, agent.waited))
        return result

    def _landed(self, what: str, agent: Warp, before: int, now: int) -> list[int]:
        return [e for group in range(before + 1, now + 1) for e in self.flights.get((what, agent.index, group), [])]

    # ---- registers ----

    def region_call(self, agent: Warp, stmt: RegionCall, *args: Value) -> None:
        super().region_call(agent, stmt, *args)
        tile = args[0] if args and isinstance(args[0], WarpTile) else None
        elements = 0 if tile is None else self._elements(tile)
        rows = max(1, self.fragment_rows)
        self.note(agent, Kind.REGION, stmt, [], elements // rows if stmt.region == "row_probs" else elements)

    def cast(self, agent: Warp, stmt: Cast, dst: Value, src: Value) -> None:
        super().cast(agent, stmt, dst, src)
        self.note(agent, Kind.REGION, stmt, [], self._elements(dst))

    def store(self, agent: Warp, stmt: Store, dst: Value, row: Value, src: Value, column: Value) -> None:
        super().store(agent, stmt, dst, row, src, column)
        self.note(agent, Kind.COPY, stmt, [], 2 * self._elements(src))

    def _elements(self, tile: Value) -> int:
        declared = tile.stmt
        assert isinstance(declared, RegisterTile)
        return self.size(declared.rows) * self.size(declared.cols)

    def _columns(self, operand: Value) -> int:
        if isinstance(operand, SharedRef):
            kind = self.shared[operand.name].type
            assert isinstance(kind, Tile)
            return self.size(kind.cols)
        declared = operand.stmt
        assert isinstance(declared, RegisterTile)
        return self.size(declared.cols)


def _by_worker(run: _Recorded) -> tuple[Event, ...]:
    """The events of the warps that stand for others; what another one does is what the warp that stands for it does."""
    of_warp: dict[int, list[Event]] = {}
    for event in run.noted:
        of_warp.setdefault(event.worker, []).append(event)
    shown = representatives(of_warp)
    number = {w: {key: e.number for key, e in _keyed(of_warp[w])} for w in dict.fromkeys(shown.values())}
    alike = {e.number: number[shown[w]][key] for w, events in of_warp.items() for key, e in _keyed(events)}
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(n for numbers in number.values() for n in numbers.values())
    for n in list(graph):
        graph.add_edges_from((alike[a], n) for a in run.noted[n].after if alike[a] != n)
    order = list(networkx.lexicographical_topological_sort(graph))
    place = {n: x for x, n in enumerate(order)}
    return tuple(
        replace(run.noted[n], number=place[n], after=tuple(sorted(place[a] for a in graph.predecessors(n))))
        for n in order
    )


def representatives(of_warp: Mapping[int, list[Event]]) -> dict[int, int]:
    """For each warp the one that stands for it: one of its warpgroup that does all that it does, the busiest of them."""
    keys = {warp: {key for key, _ in _keyed(events)} for warp, events in of_warp.items()}
    found: dict[int, int] = {}
    for warp in sorted(keys, key=lambda w: (-len(keys[w]), w)):
        known = (w for w in found.values() if w // WARPS == warp // WARPS and keys[warp] <= keys[w])
        found[warp] = next(known, warp)
    return found


_Key = tuple[int, bool, int]
"""A statement, whether apart, and the how manieth."""


def _keyed(events: list[Event]) -> list[tuple[_Key, Event]]:
    seen: dict[tuple[int, bool], int] = {}
    found: list[tuple[_Key, Event]] = []
    for event in events:
        key = (id(event.stmt), event.apart)
        seen[key] = seen.get(key, 0) + 1
        found.append(((*key, seen[key]), event))
    return found
