"""Event graphs: what counts as the same orchestration, and what a target may change."""

from __future__ import annotations

import networkx as nx
import pytest

from cubridge.ir.nodes import Stmt
from cubridge.ir.walk import walk
from cubridge.judge.faults.catalog import enumerate_faults
from cubridge.verify.effects import commute, effects
from cubridge.verify.events import event_graph, events, graph_key, structure_difference
from tests.support.edit_text import edited
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel

REGIONS_ONLY = (
    ("s = where(j < Lk, s, -inf)", "s = where((j < Lk) & (j <= i), s, -inf)"),
    ("full_hi = Lk // BLOCK_KV", "full_hi = 0"),
    ("exponent_scale=Scalar(f32, host=D ** -0.5 * LOG2E),", "slope=Captured(f32, Hq),"),
    ("tile_state()", "tile_state(\n    slope=Scalar(f32),\n)"),
    ("    o_scale=Row(f32),", "    o_scale=Row(f32),\n    extra=Row(f32),"),
)  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_graph_has_every_statement_and_no_circle(name: str) -> None:
    graph = event_graph(golden_kernel(name))
    assert nx.is_directed_acyclic_graph(graph)
    assert {e.span.text for e in events(graph)} >= {"block_sync()"}
    roles = {"all"} if name == "sm80" else {"all", "warpgroup == 0", "not warpgroup == 0"}
    assert {e.role for e in events(graph)} == roles


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_variants_keep_the_structure(name: str) -> None:
    assert structure_difference(golden_kernel(name), edited(name, *REGIONS_ONLY)) == ()


def test_statements_that_commute_may_trade_places() -> None:
    source = golden_kernel("sm80")
    other = edited("sm80", ("    zero(o)\n    row_init(row, tile)\n", "    row_init(row, tile)\n    zero(o)\n"))
    assert other != source
    assert structure_difference(source, other) == ()
    assert graph_key(event_graph(source)) == graph_key(event_graph(other))


@pytest.mark.parametrize(
    "name,old,new,code,place",
    [
        ("sm80", "        wait_group(1)\n", "", "CU270", "wait_group(1)"),
        ("sm80", "        wait_group(1)\n", "        wait_group(0)\n", "CU270", "wait_group(0)"),
        ("sm80", "        wait_group(1)\n        block_sync()\n", "        block_sync()\n        wait_group(1)\n", "CU270", ""),
        ("sm80", "        block_sync()\n", "        block_sync()\n        block_sync()\n", "CU270", "block_sync()"),
        ("sm80", "smem.k[slot].T", "smem.k[slot ^ 1].T", "CU270", "s = gemm(smem.q, smem.k[slot ^ 1].T)"),
        ("sm80", "    score(s, n * BLOCK_KV, tile)\n", "    pass_by = 0\n", "CU270", "pass_by = 0"),
        ("sm90a", "wgmma_wait(1)", "wgmma_wait(0)", "CU270", "wgmma_wait(0)"),
        ("sm90a", "NEXT_TURN=2", "NEXT_TURN=3", "CU271", ""),
        ("sm90a", "counters=Counters(2)", "counters=Counters(3)", "CU271", ""),
        ("sm90a", "work=SharedValue(i32)", "work=SharedValue(i64)", "CU271", ""),
        ("sm90a", "tile.h = head % Hq", "tile.h = (head + 1) % Hq", "CU271", ""),
        ("sm90a", "threads=(CONSUMERS + 1) * 128", "threads=384", "CU271", ""),
    ],
)  # fmt: skip
def test_other_changes_are_differences(name: str, old: str, new: str, code: str, place: str) -> None:
    found = structure_difference(golden_kernel(name), edited(name, (old, new)))
    assert [d for d in found if d.code == code and place in d.span.text], found


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_fault_outside_regions_is_a_difference(name: str) -> None:
    source = golden_kernel(name)
    real = [f for f in enumerate_faults(source) if f.no_change is None and f.path.steps[0] in ("body", "schedule")]
    faults = real[:: len(real) // 20]
    assert faults
    assert [str(f) for f in faults if not structure_difference(source, f.kernel)] == []


def test_waits_and_arrivals() -> None:
    """Two waits commute; a wait and an arrival, or either and an access, do not."""
    found = {s.span.text: effects(s) for s in walk(golden_kernel("sm90a")) if isinstance(s, Stmt)}
    wait_q, wait_k = (next(e for t, e in found.items() if t.startswith(f"barrier_wait(smem.{b}_full")) for b in "qk")
    arrive = found["barrier_arrive(smem.work_empty)"]
    copy = next(e for t, e in found.items() if t.startswith("copy_async(smem.k"))
    assert commute(wait_q, wait_k)
    assert not commute(wait_q, arrive)
    assert not commute(wait_k, copy)
    assert not commute(arrive, copy)
