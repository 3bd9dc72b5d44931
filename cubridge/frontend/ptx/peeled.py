"""Iterations over key tiles that stand in the text before the loop, or instead of it: they begin where those of the loop do, so
many waits and barriers before their keys are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cubridge.frontend.ptx.events import At, Events
from cubridge.frontend.ptx.loops import KeyLoop, find_loop
from cubridge.ir.block_events import Act
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import Span
from cubridge.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class Walk:
    """One run's walk over key tiles: its trace, what it does, and the loop of its text, if it came to one."""

    trace: Trace
    events: Events
    loop: KeyLoop | None

    @staticmethod
    def of(trace: Trace, events: Events) -> Walk:
        """Errors: CU853."""
        return Walk(trace, events, find_loop(trace, [at.step for _, at in _reads(events, "v")]))

    @property
    def keys(self) -> list[int]:
        """How many turns come before each read of a key tile."""
        return [turns for turns, _ in _reads(self.events, "k")]

    @property
    def lead(self) -> int | None:
        """How many turns an iteration of the loop has before its keys are read."""
        if self.loop is None:
            return None
        start = self.loop.starts[0][0]
        read = next(turns for turns, at in _reads(self.events, "k") if at.step >= start)
        return read - sum(step < start for step in self.events.turns[0])


def whole_loops(walks: Sequence[Walk]) -> list[KeyLoop]:
    """Of each run, all its iterations. Errors: CU853."""
    leads = {walk.lead for walk in walks} - {None}
    if not leads:
        raise CuError(
            Diagnostic("CU853", "the runs have no loop in which values are read", walks[0].trace.code[0].span)
        )
    if len(leads) != 1:
        raise CuError(Diagnostic("CU853", "iterations over key tiles begin in several ways", _span(walks)))
    return [_whole(walk, leads.copy().pop() or 0, _span(walks)) for walk in walks]


def _whole(walk: Walk, lead: int, span: Span) -> KeyLoop:
    if walk.loop is not None and walk.loop.count == len(walk.keys):
        return walk.loop
    if not walk.keys:
        raise CuError(Diagnostic("CU853", "a block that is followed visits no key tile", span))
    if not lead:
        message = "a key tile is visited outside of the loop, and no wait or barrier shows where its iteration begins"
        raise CuError(Diagnostic("CU853", message, span))
    before = len(walk.keys) - (0 if walk.loop is None else walk.loop.count)
    own = [tuple(turns[n - lead] for n in walk.keys[:before]) for turns in walk.events.turns]
    if walk.loop is None:
        return KeyLoop(tuple(own), _behind(walk), span, before)
    starts = tuple((*first, *rest) for first, rest in zip(own, walk.loop.starts, strict=True))
    return KeyLoop(starts, walk.loop.stops, walk.loop.span, before)


def _behind(walk: Walk) -> tuple[int, ...]:
    """The turn that follows the last read of values; the end where there is none."""
    turns, at = _reads(walk.events, "v")[-1]
    ends = [steps[turns] if turns < len(steps) else len(walk.trace.steps) for steps in walk.events.turns]
    stored = [a.step for a in walk.events.order if isinstance(a.act, Act) and a.act.kind == "store"]
    return (min([ends[0], *(s for s in stored if s > at.step)]), *ends[1:])


def _reads(events: Events, tensor: str) -> list[tuple[int, At]]:
    """Of a tensor's tiles, with the number of turns before each."""
    turns, found = 0, list[tuple[int, At]]()
    for at in events.order:
        if not isinstance(at.act, Act):
            turns += 1
        elif at.act.kind == "read" and at.act.tile.tensor == tensor:
            found.append((turns, at))
    return found


def _span(walks: Sequence[Walk]) -> Span:
    return next(walk.loop.span for walk in walks if walk.loop is not None)
