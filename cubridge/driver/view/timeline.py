"""Who does what when in a kernel, by the order engine's events at nominal durations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import networkx

from cubridge.engine.order.events import WARPS, Event, Kind, kernel_events
from cubridge.engine.order.timing import spans
from cubridge.ir.nodes import Kernel
from cubridge.ir.printer import print_stmts
from cubridge.ir.workers import takes_several
from cubridge.show.view import Bar, Timeline

COUNTS: Final = (4, 3)
"""Key tiles of the work tiles of the run that is shown."""


@lru_cache(maxsize=8)
def timeline_of(kernel: Kernel) -> Timeline:
    """The timeline of work tiles with `COUNTS` key tiles. Errors: as `kernel_events`."""
    return _timeline(kernel, kernel_events(kernel, COUNTS), COUNTS)


def event_graph(kernel: Kernel, counts: tuple[int, ...]) -> tuple[Timeline, tuple[tuple[int, int], ...]]:
    """And which bars wait for which, without what follows from others. Errors: as `kernel_events`."""
    events = kernel_events(kernel, counts)
    graph: networkx.DiGraph[int] = networkx.DiGraph((a, e.number) for e in events for a in e.after)
    return _timeline(kernel, events, counts), tuple(sorted(networkx.transitive_reduction(graph).edges))


def _timeline(kernel: Kernel, events: Sequence[Event], counts: tuple[int, ...]) -> Timeline:
    """A lane a worker, and one below it for what it has started and what goes on beside it."""
    lanes = list(dict.fromkeys(sorted((e.worker, e.apart) for e in events)))
    numbers = {lane: x for x, lane in enumerate(lanes)}
    bars = [
        Bar(numbers[e.worker, e.apart], s.start, s.end, str(e.kind), said(e), s.critical)
        for s in spans(events)
        for e in (s.event,)
    ]
    names = tuple(_lane(events, *lane) for lane in lanes)
    return Timeline(names, tuple(bars), counts if takes_several(kernel) else counts[:1])


def said(event: Event) -> str:
    """The statement of an event, in a line."""
    return print_stmts((event.stmt,)).strip().splitlines()[0]


def _lane(events: Sequence[Event], worker: int, apart: bool) -> str:
    if apart:
        kinds = {e.kind for e in events if e.worker == worker and e.apart}
        return " and ".join(name for kind, name in _APART.items() if kind in kinds)
    workers = {e.worker for e in events}
    if len(workers) == 1:
        return "the block"
    is_only = sum(w // WARPS == worker // WARPS for w in workers) == 1
    return f"{f'warpgroup {worker // WARPS}' if is_only else f'warp {worker}'}{_role(events, worker)}"


def _role(events: Sequence[Event], worker: int) -> str:
    """Who multiplies consumes, who only copies produces."""
    kinds = {e.kind for e in events if e.worker == worker}
    return " (consumer)" if Kind.GEMM in kinds else " (producer)" if Kind.COPY in kinds else ""


_APART: Final = {Kind.COPY: "copies", Kind.GEMM: "tensor cores"}
