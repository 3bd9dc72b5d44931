"""The report of a deadlock: who waits for what, at which statement, and where it would come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cubridge.engine.core.barriers import BarrierMachine
from cubridge.engine.core.machine import A
from cubridge.engine.core.sync import Agent, Meeting
from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.nodes import (
    BarrierArrive,
    BarrierExpect,
    BarrierWait,
    BlockSync,
    NamedSync,
    RegistersTake,
    Stmt,
    WgmmaWait,
)  # fmt: skip
from cubridge.ir.operands import shared_name
from cubridge.ir.walk import walk


def deadlock(machine: BarrierMachine[A]) -> Diagnostic:
    """CU250, at the statement of the first agent that waits; the others are notes."""
    groups: dict[tuple[int, str], list[Agent]] = {}
    for agent in machine.agents:
        if not agent.done:
            groups.setdefault((agent.pc, _waits_for(machine, agent)), []).append(agent)
    lines = [(_wait(agents), what, machine.code[pc].stmt) for (pc, what), agents in groups.items()]
    (who, what, stmt), *others = lines
    notes = [Note(f"{w} {x}", s.span) for w, x, s in others]
    return Diagnostic("CU250", f"deadlock: {who} {what}", stmt.span, (*notes, *_sources(machine, stmt)))


def _waits_for(machine: BarrierMachine[A], agent: A) -> str:
    at = machine.code[agent.pc]
    match at.stmt:
        case BarrierWait():
            barrier = machine.barrier(at.operands[0](agent), at.stmt)
            return f"phase {barrier.phase} of `{barrier.label}`, which lacks {barrier.lacks()}"
        case NamedSync():
            return _count(*machine.named(at.stmt, *(operand(agent) for operand in at.operands)))
        case BlockSync():
            return _count(machine.block, sum(a.threads for a in machine.agents))
        case WgmmaWait():
            return "the other warps of its warpgroup"
        case RegistersTake():
            return "registers that another role releases"
        case _:
            return "the others"


def _count(meeting: Meeting, threads: int) -> str:
    return f"{meeting.label}, which has {meeting.count} of {threads} threads"


def _sources(machine: BarrierMachine[Any], stmt: Stmt) -> Iterator[Note]:
    """Where what a wait waits for would come from."""
    if not isinstance(stmt, BarrierWait):
        return
    name = shared_name(stmt.barrier)
    arriving = [n for n in walk(machine.kernel) if isinstance(n, BarrierArrive | BarrierExpect)]
    here = [n for n in arriving if shared_name(n.barrier) == name]
    yield from (Note(f"`smem.{name}` is arrived at here", n.span) for n in here)
    if not here:
        yield Note(f"nothing arrives at `smem.{name}`")
    for barrier in machine.barriers.values():
        if barrier.unclaimed and barrier.last_expect is not None:
            message = f"no copy brings {barrier.unclaimed} of the bytes that `{barrier.label}` expects"
            yield Note(message, barrier.last_expect.span)


def _wait(agents: Sequence[Agent]) -> str:
    names = [agent.label for agent in agents]
    if len(names) == 1:
        return f"{names[0]} waits for"
    return f"{names[0].replace('warp ', 'warps ')} to {names[-1].removeprefix('warp ')} wait for"
