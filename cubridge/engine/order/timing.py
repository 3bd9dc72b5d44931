"""When the events of a kernel would be, at nominal durations, and which of them the last one waits for.

Nothing is measured: the durations are those of `RATES`, so that order and overlap can be seen, not speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cubridge.engine.order.events import Event, Kind


@dataclass(frozen=True, slots=True)
class Rate:
    """Clocks of an event: `fixed`, and one for each `each` of its amount."""

    fixed: int
    each: int


RATES: Final = {
    Kind.START: Rate(8, 0),
    Kind.SIGNAL: Rate(8, 0),
    Kind.WAIT: Rate(8, 0),
    Kind.COPY: Rate(400, 64),
    Kind.GEMM: Rate(32, 1024),
    Kind.REGION: Rate(16, 32),
}
"""Of a copy by its bytes, of a gemm by its multiplications, of a region by the elements that it is called on."""


@dataclass(frozen=True, slots=True)
class Span:
    """When an event would begin and end; a wait begins when its worker comes to it. `critical`: the end of the whole waits for
    it."""

    event: Event
    start: int
    end: int
    critical: bool = False


def spans(events: Sequence[Event]) -> tuple[Span, ...]:
    """Each event as soon as what it waits for has ended; `events` are in an order that respects `after`."""
    start: list[int] = []
    end: list[int] = []
    for event in events:
        start.append(max((end[a] for a in event.after), default=0))
        end.append(start[-1] + _clocks(event))
    critical = _critical(events, start, end)
    begun = _begun(events, start, end)
    return tuple(Span(e, begun[e.number], end[e.number], e.number in critical) for e in events)


def _begun(events: Sequence[Event], start: list[int], end: list[int]) -> list[int]:
    free: dict[int, int] = {}  # worker -> the end of its last event
    begun = list(start)
    for event in events:
        if event.kind is Kind.WAIT:
            begun[event.number] = free.get(event.worker, 0)
        if not event.apart:
            free[event.worker] = end[event.number]
    return begun


def _clocks(event: Event) -> int:
    rate = RATES[event.kind]
    return rate.fixed + (event.amount // rate.each if rate.each else 0)


def _critical(events: Sequence[Event], start: list[int], end: list[int]) -> set[int]:
    """Back from the event that ends last, by what each waited for longest."""
    if not events:
        return set()
    at = max(range(len(events)), key=lambda x: end[x])
    found = {at}
    while events[at].after:
        at = next(a for a in events[at].after if end[a] == start[at])
        found.add(at)
    return found
