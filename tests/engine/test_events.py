"""Events of the order engine, and when they would be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from cubridge.engine.order.events import Event, Kind, kernel_events, representatives
from cubridge.engine.order.timing import spans
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import BarrierWait, CopyAsync, Gemm, Stmt
from cubridge.ir.printer import print_stmts
from tests.support.edit_text import edited
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel

COUNTS = {
    "sm80": {"q": 1, "k": 4, "v": 4, "s": 4, "o": 4},
    "sm90a": {"q": 2 * 2, "k": 4 + 3, "v": 4 + 3, "s": 2 * 7, "o": 2 * 7},
}
"""Copies and gemms for work tiles of 4 and 3 key tiles: by what is copied, and by what is computed."""


def what(stmt: Stmt) -> str:
    return print_stmts((stmt,)).strip().removeprefix("copy_async(smem.")[0]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_copy_and_gemm_is_there(name: str) -> None:
    done = [e for e in kernel_events(golden_kernel(name)) if e.kind in (Kind.COPY, Kind.GEMM)]
    loads = [e for e in done if isinstance(e.stmt, CopyAsync | Gemm)]
    assert {w: sum(what(e.stmt) == w for e in loads) for w in "qkvso"} == COUNTS[name]
    assert all(e.amount > 0 for e in done)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_nothing_begins_before_what_it_waits_for(name: str) -> None:
    events = kernel_events(golden_kernel(name))
    found = spans(events)
    assert all(a < e.number for e in events for a in e.after)
    for span in found:
        ends = [found[a].end for a in span.event.after]
        assert span.end > max(ends, default=0)
        assert span.event.kind is Kind.WAIT or span.start == max(ends, default=0)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_the_critical_path_leads_from_the_begin_to_the_end(name: str) -> None:
    found = spans(kernel_events(golden_kernel(name)))
    path = [s for s in found if s.critical]
    assert path[-1].end == max(s.end for s in found)
    assert path[0].event.after == ()
    for a, b in pairwise(path):
        assert a.event.number in b.event.after
        assert a.end == b.start or b.event.kind is Kind.WAIT
    assert any(s.event.kind is Kind.GEMM for s in path)


def test_a_wait_is_for_the_copy_that_lands_on_its_barrier() -> None:
    events = kernel_events(golden_kernel("sm90a"))
    waits = [e for e in events if isinstance(e.stmt, BarrierWait) and "smem.v_full" in print_stmts((e.stmt,))]
    assert waits
    for wait in waits:
        copies = [events[a] for a in wait.after if events[a].apart]
        assert [what(c.stmt) for c in copies] == ["v"]


def test_fewer_slots_make_the_kernel_wait_longer() -> None:
    kernel = golden_kernel("sm90a")
    constants = tuple(replace(c, value=4) if c.name == "STAGES" else c for c in kernel.constants)
    ends = [max(s.end for s in spans(kernel_events(k))) for k in (kernel, replace(kernel, constants=constants))]
    assert ends[1] <= ends[0]


def test_a_warp_that_does_something_else_stands_for_itself() -> None:
    """Warps 1 and 3 do less than warp 0, warp 2 other things, and warp 4 is of another warpgroup."""
    copy, gemm = (
        next(e.stmt for e in kernel_events(golden_kernel("sm90a")) if e.kind is k) for k in (Kind.COPY, Kind.GEMM)
    )

    def of(warp: int, *stmts: Stmt) -> list[Event]:
        return [Event(0, warp, Kind.START, stmt, ()) for stmt in stmts]

    warps = {0: of(0, copy, copy), 1: of(1, copy), 2: of(2, gemm), 3: of(3), 4: of(4, copy)}
    assert representatives(warps) == {0: 0, 1: 0, 2: 2, 3: 0, 4: 4}


def test_a_deadlock_is_said_and_not_drawn() -> None:
    with pytest.raises(CuError) as error:
        kernel_events(edited("sm90a", ("if leader:\n    barrier_arrive(smem.v_empty[v_slot])", "")))
    assert error.value.diagnostics[0].code == "CU250"
