"""The order engine on both kernels, and on kernels with one fault each, which it must name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cubridge.engine.order.engine import check_order, run_order, scenarios
from cubridge.ir.codes import CODES
from cubridge.ir.nodes import For, If, Loop, Stmt
from cubridge.ir.parser import parse
from tests.support.edit_text import edited
from tests.support.golden_texts import GOLDEN_NAMES, golden_file, golden_kernel


def without_one(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Each statement at any depth, with the body that lacks it."""
    for x, stmt in enumerate(body):
        before, after = body[:x], body[x + 1 :]
        yield stmt, before + after
        for name in ("then", "orelse") if isinstance(stmt, If) else ("body",) if isinstance(stmt, For | Loop) else ():
            for inner, shorter in without_one(getattr(stmt, name)):
                yield inner, (*before, replace(stmt, **{name: shorter}), *after)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_kernels_have_no_order_fault(name: str) -> None:
    assert check_order(golden_kernel(name)) == ()


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_deleting_any_statement_is_found(name: str) -> None:
    kernel = golden_kernel(name)
    missed = [s.span.text for s, body in without_one(kernel.body) if not check_order(replace(kernel, body=body))]
    assert missed == []


def test_copies_by_the_threads_themselves() -> None:
    """They need no wait, and a barrier as the others do."""
    text = golden_file("sm80").text.replace("copy_async(", "copy(").replace("        wait_group(1)\n", "")
    assert check_order(parse(text)) == ()
    assert [f.code for f in check_order(parse(text.replace("        block_sync()\n", "", 1)))] == ["CU251"]


LOAD_K = "copy_async(smem.k[slot ^ 1], p.k[tile.b, tile.hk], row=key_tile(keys, t + 1) * BLOCK_KV)"
LOAD_V0 = "copy_async(smem.v[0], p.v[tile.b, tile.hk], row=key_tile(keys, 0) * BLOCK_KV)"
LOAD_Q = "copy_async(smem.q, p.q[tile.b, tile.h], row=tile.q_start)"
RELEASE_V = "if leader:\n    barrier_arrive(smem.v_empty[v_slot])"
RELEASE_K = "if leader:\n    barrier_arrive(smem.k_empty[k_ring.slot])"
STOP = "if work >= p.work_count:\n    break\n"

FAULTS = [
    # a deadlock, with who waits for what
    ("sm90a", RELEASE_V, "", "CU250", "barrier_wait(smem.v_empty"),
    ("sm90a", "registers_release(40)", "registers_release(48)", "CU250", "registers_take(232)"),
    # accesses that nothing orders
    ("sm80", "wait_group(1)\nblock_sync()", "block_sync()", "CU251", "s = gemm(smem.q"),
    ("sm80", "block_sync()", "", "CU251", "s = gemm(smem.q"),
    ("sm90a", "barrier_wait(smem.work_full, work_ring.phase)", "", "CU251", "smem.work"),
    ("sm90a", "barrier_wait(smem.work_empty, work_ring.phase ^ 1)", "", "CU251", ""),
    ("sm90a", "wgmma_wait(1)", f"{RELEASE_K}\nwgmma_wait(1)", "CU251", "copy_async(smem.k"),
    (
        "sm90a",
        "if leader:\n    bulk_wait_read(0)\nnamed_sync(STAGING + wg, 128)",
        "named_sync(STAGING + wg, 128)",
        "CU251",
        "write_shared",
    ),
    # slots: nothing in them, or nobody reads it
    ("sm80", LOAD_V0, "", "CU252", "o += gemm"),
    ("sm80", LOAD_V0, LOAD_V0.replace("smem.v[0]", "smem.v[1]"), "CU252", "o += gemm"),
    ("sm80", LOAD_K, LOAD_K.replace("slot ^ 1", "slot"), "CU253", "copy_async(smem.k[slot]"),
    # registers in flight, registers not written
    ("sm90a", "wgmma_wait(1)", "wgmma_wait(2)", "CU254", "score(s, n"),
    (
        "sm90a",
        f"wgmma_wait(0)\n{RELEASE_V}\nrow_rescale(o, row, tile)",
        f"row_rescale(o, row, tile)\nwgmma_wait(0)\n{RELEASE_V}",
        "CU254",
        "row_rescale",
    ),
    ("sm80", "zero(o)", "", "CU255", ""),
    # what all threads must do together
    ("sm80", "block_sync()", "if thread < 40:\n    block_sync()", "CU256", "block_sync()"),
    (
        "sm90a",
        "wgmma_commit()\no += gemm_async(probs, smem.v[v_slot])",
        "if thread % 64 < 32:\n    wgmma_commit()",
        "CU256",
        "",
    ),
    # barriers
    ("sm90a", "barrier_init(smem.v_full[x], 1)", "", "CU257", "barrier_expect(smem.v_full"),
    ("sm90a", "barrier_init_fence()", "", "CU257", "copy_async(smem.k"),
    ("sm90a", "block_sync()", "", "CU257", ""),
    ("sm90a", "work_empty, CONSUMERS * 128)", "work_empty, 1)", "CU258", "barrier_arrive(smem.work_empty)"),
    (
        "sm90a",
        "lse = register(f32, 64)",
        "barrier_arrive(smem.k_empty[wg])\nlse = register(f32, 64)",
        "CU258",
        "barrier_arrive",
    ),
    ("sm90a", "bytes(smem.k))", "bytes(smem.k) // 2)", "CU259", "copy_async(smem.k"),
    ("sm80", "lse = register(f32, BLOCK_Q)", f"{LOAD_Q}\nlse = register(f32, BLOCK_Q)", "CU260", "copy_async(smem.q"),
    # named barriers, fences
    ("sm90a", "named_sync(NEXT_TURN + wg, 256)", "named_sync(NEXT_TURN + wg, 384)", "CU261", "named_sync"),
    ("sm90a", "named_sync(NEXT_TURN + wg, 256)", "named_sync(NEXT_TURN + 14, 256)", "CU261", "named_sync"),
    ("sm90a", "named_sync(NEXT_TURN + wg, 256)", "", "CU261", "named_arrive"),
    (
        "sm90a",
        "named_sync(NEXT_TURN + wg, 256)\nwgmma_fence()",
        "named_sync(NEXT_TURN + wg, 256)",
        "CU262",
        "s = gemm_async",
    ),
    ("sm90a", "async_proxy_fence()", "", "CU262", "store_async"),
    (
        "sm90a",
        "write_shared(smem.o[wg], o)\nasync_proxy_fence()",
        "async_proxy_fence()\nwrite_shared(smem.o[wg], o)",
        "CU262",
        "store_async",
    ),
    # steps of a tile
    ("sm80", "if key_masked(keys, t):", "if count < 0:", "CU263", "row_update"),
    ("sm80", "row_rescale(o, row, tile)", "", "CU263", "o += gemm"),
    ("sm80", "row_update(s, row, n * BLOCK_KV, tile)", "score(s, n * BLOCK_KV, tile)", "CU263", "score"),
    ("sm80", "smem.v[slot])", "smem.v[slot].T)", "CU263", "o += gemm"),
    ("sm90a", "row_finalize(o, lse, row, tile)", "", "CU263", "write_shared"),
    ("sm90a", "src=smem.o[wg])", "src=smem.q[wg])", "CU263", "store_async"),
    # tiles of another place
    ("sm80", "if t + 1 < count:", "if t + 1 <= count:", "CU264", "key_tile(keys, t + 1)"),
    ("sm80", "mask(s, n * BLOCK_KV, tile)", "mask(s, n * BLOCK_KV + 1, tile)", "CU264", "mask"),
    ("sm80", "o += gemm(probs, smem.v[slot])", "o = gemm(probs, smem.v[slot])", "CU264", "row_finalize"),
    ("sm90a", "registers_release(40)", "registers_release(168)", "CU265", "registers_release"),
    ("sm90a", "row=tile.q_start + w * 64", "row=tile.q_start", "CU264", "score"),
    ("sm90a", "row=tile.q_start + wg * 64, src=smem.o", "row=tile.q_start, src=smem.o", "CU264", "store_async"),
    # register budgets, work
    ("sm90a", "registers_take(232)", "registers_take(224)", "CU265", "registers_release(40)"),
    ("sm90a", "work = grid_x + next", "work = next + 1", "CU266", "work_tile(work)"),
    ("sm90a", "smem.work_h = tile.h", "smem.work_h = tile.hk", "CU266", "tile_at"),
    ("sm90a", "finish_counters(p.counters)", "nothing = 0", "CU266", ""),
    ("sm90a", f"{STOP}tile = work_tile(work)", "tile = work_tile(work)", "CU266", "work_tile(work)"),
    ("sm80", "slot = slot ^ 1", "while True:\n    slot = slot ^ 1", "CU267", ""),
]


@pytest.mark.parametrize("name,old,new,code,place", FAULTS, ids=[f"{f[3]}-{x}" for x, f in enumerate(FAULTS)])
def test_a_fault_is_named_at_its_place(name: str, old: str, new: str, code: str, place: str) -> None:
    diagnostics = check_order(edited(name, (old, new)))
    assert [(d.code, d.span.text) for d in diagnostics if d.code == code and place in d.span.text], diagnostics


FINALIZE = "row_finalize(o, lse, row, tile)"
END = "lse = register(f32, BLOCK_Q)"
LAST = "wgmma_wait(0)\nif leader:\n    barrier_arrive(smem.v_empty[v_ring.slot])\nring_next(v_ring)"
LEAVE_O = (
    "if leader:\n    store_async(p.o[tile.b, tile.h], row=tile.q_start + wg * 64, src=smem.o[wg])\n    bulk_commit()"
)
MEET = "named_sync(STAGING + wg, 128)"
STORE_O = (
    f"if leader:\n    bulk_wait_read(0)\n{MEET}\nwrite_shared(smem.o[wg], o)\nasync_proxy_fence()\n{MEET}\n{LEAVE_O}"
)
OUTPUTS = (
    f"lse = register(f32, 64)\n{FINALIZE}\n{STORE_O}\nif present(p.lse):\n"
    "    store(p.lse[tile.b, tile.h], row=tile.q_start, src=lse)"
)
"""Gone, and the loop with them, nothing looks at what is in flight before the warp ends."""
ADD, RESCALE, LATER = "o += gemm(probs, smem.v[slot])", "row_rescale(o, row, tile)", "if (t + 1 < count) | (count < 2):"
LEFT_OVER = [
    ("sm80", [(END, f"{LOAD_Q}\n{END}")], "ends with copies in a group that it never commits"),
    ("sm80", [(END, f"{LOAD_Q}\ncommit()\n{END}")], "ends without a wait for this copy"),
    (
        "sm90a",
        [(f"wgmma_commit()\n{LAST}", "break"), (OUTPUTS, "break")],
        "ends with gemms in a group that it never commits",
    ),
    ("sm90a", [(LAST, ""), (OUTPUTS, "break")], "ends without a wait for its last gemms"),
    ("sm80", [(FINALIZE, f"{FINALIZE}\n{FINALIZE}")], "`o` is finalized twice"),
    (
        "sm80",
        [(RESCALE, f"{LATER}\n    {RESCALE}"), (ADD, f"{LATER}\n    {ADD}")],
        "`o` is not rescaled for the last `row_update`",
    ),
]


@pytest.mark.parametrize("name,changes,said", LEFT_OVER, ids=[f[2] for f in LEFT_OVER])
def test_what_is_left_over_is_said(name: str, changes: list[tuple[str, str]], said: str) -> None:
    assert check_order(edited(name, *changes))[0].message.endswith(said)


def test_every_code_of_the_engine_is_shown() -> None:
    engine = {code for code in CODES if "CU250" <= code <= "CU267"}
    assert engine == {fault[3] for fault in FAULTS}


def test_a_deadlock_says_who_waits_for_what() -> None:
    kernel = edited("sm90a", ("if leader:\n    barrier_arrive(smem.k_empty[k_ring.slot])", ""))
    (first, *_) = check_order(kernel)
    assert first.code == "CU250"
    assert "lacks 2 of 2 arrivals" in first.message
    assert any("warps 4 to 11 wait for phase 0 of `smem.v_full[1]`" in note.message for note in first.notes)
    assert any("is arrived at here" in note.message for note in first.notes)


def test_a_race_names_the_other_access() -> None:
    (first, *_) = check_order(edited("sm80", ("block_sync()", "")))
    assert "copy_async(smem.q" in first.notes[0].span.text


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_scenarios_cover_what_they_promise(name: str) -> None:
    all_scenarios = scenarios(golden_kernel(name))
    counts = {count for s in all_scenarios for count in s.counts}
    assert counts == {0, 1, 2, 3, 4}
    assert {s.lse for s in all_scenarios} == {True, False}
    assert {s.one_step for s in all_scenarios} == {True, False}
    if name == "sm90a":
        assert {s.dealt for s in all_scenarios} == {True, False}
        pairs = {pair for s in all_scenarios for pair in zip(s.counts, s.counts[1:], strict=False)}
        assert {(3, 2), (2, 0), (0, 1), (4, 2), (0, 0)} <= pairs


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_schedules_agree_on_what_becomes_of_tiles(name: str) -> None:
    """The same counts under unlike schedules: a race-free kernel does the same in all."""
    kernel = golden_kernel(name)
    first, second = (run_order(kernel)[1] for _ in range(2))
    assert first == second
    assert len(first) == len(scenarios(kernel))
    for history in (h for trace in first for _, histories, *_ in trace for h in histories):  # pyright: ignore
        assert history[-1] == ("finalize", sum(step[0] == "gemm" for step in history))


def test_the_queries_of_two_work_tiles_need_two_slots() -> None:
    one = ("q_ring = Ring(2)", "q_ring = Ring(1)")  # the producer's, then the consumers'
    fault, *_ = check_order(edited("sm90a", one, one))
    assert fault.code == "CU251" and fault.span.text.startswith("copy_async(smem.q")


def test_threads_of_a_warp_take_both_branches_of_an_if() -> None:
    """Lanes that disagree go one after the other; an arrival counts the active ones."""
    arrive = "barrier_arrive(smem.work_empty)"
    both = f"if thread % 32 < 8:\n    {arrive}\nelse:\n    {arrive}"
    assert check_order(edited("sm90a", (arrive, both))) == ()


def test_threads_of_a_warp_leave_a_loop_together() -> None:
    before = "work = smem.work\n"
    apart = STOP.replace("work >=", "work + thread % 32 >=").rstrip()
    kernel = edited("sm90a", (before + STOP.rstrip(), before + apart))
    assert check_order(kernel)[0].code == "CU256"
