"""The static verifier: both kernels pass, each rule finds its fault, and what deletions it leaves to the engines."""
# ruff: noqa: E501  (a row of the table of faults stays on one line)

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.parser import parse
from cubridge.ir.printer import print_stmts
from cubridge.ir.source import SourceFile
from cubridge.verify.ranges import LARGEST, LIMITS, captured_bound, check_body_ranges, check_region_ranges
from cubridge.verify.verifier import verify
from tests.support.deletions import deletions
from tests.support.golden_texts import GOLDEN_NAMES, golden_file, golden_kernel


def changed(name: str, *edits: tuple[str, str]) -> tuple[Diagnostic, ...]:
    """The faults of a golden text after replacements, each of which must apply once or more."""
    text = golden_file(name).text
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return verify(parse(SourceFile.from_text(f"{name}.cuir", text)))


def test_what_a_skip_may_know() -> None:
    """Locals keep their meaning while others are made, and lose it with what they were made of."""
    head = "def row_rescale(o, row, tile):\n"
    skip = "if any_lane(row.o_scale != 1.0):"
    known = f"{head}    a = row.o_scale\n    moved = a != 1.0\n    b = 2.0\n    a = b\n"
    assert changed("sm80", (head, known), (skip, "if any_lane(moved):")) == ()
    lost = f"{head}    moved = row.o_scale != 1.0\n    moved = row.l_max > 1.0\n".replace("row.l_max", "row.m")
    assert [f.code for f in changed("sm80", (head, lost), (skip, "if any_lane(moved):"))] == ["CU225"]


def test_definitions_that_grow() -> None:
    """Each doubles what it is written out as."""
    lines = "".join(f"    x{n + 1} = x{n} * x{n} + x{n}\n" for n in range(60))
    start = time.process_time()
    old = "def row_rescale(o, row, tile):\n"
    assert changed("sm80", (old, f"{old}    x0 = row.o_scale\n{lines}")) == ()
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_kernels_verify(name: str) -> None:
    kernel = golden_kernel(name)
    start = time.process_time()
    assert verify(kernel) == ()
    assert time.process_time() - start < 1.0


FAULTS = [
    # names and structure
    ("sm80", "ROWS=4)", "ROWS=4, Lk=3)", "CU200", "`Lk` means something else already"),
    ("sm80", "@region\ndef score(s, kv_start, tile):\n    pass\n\n", "", "CU205", "the kernel has no region `score`"),
    ("sm80", "def score(s, kv_start, tile):", "def score(s, kv_start):", "CU205", "this region is `score(s, kv_start, tile)`"),
    ("sm80", 'arch="sm_80"', 'arch="sm_70"', "CU207", "`sm_70` is none of sm_80, sm_90a"),
    ("sm80", 'team="block"', 'team="warp"', "CU207", "`warp` is none of block, warpgroup"),
    ("sm80", "threads=WARPS * 32", "threads=WARPS * 31", "CU207", "124 threads: a multiple of 32 up to 1024 is needed"),
    ("sm80", "m=Row(f32)", "m=Scalar(f32)", "CU205", "`Scalar` has no place in `row_state`"),
    ("sm80", "swizzle=128),\n    k", "swizzle=96),\n    k", "CU207", "a swizzle is 0, 32, 64 or 128 bytes"),
    ("sm80", "HEAD_DIM=128", "HEAD_DIM=80", "CU207", "a row of 160 bytes is no multiple of its swizzle, 128 bytes"),
    ("sm80", "BLOCK_KV=64", "BLOCK_KV=33", "CU207", "a gemm of 33 columns: a multiple of 8 is needed"),
    ("sm80", "BLOCK_KV=64", "BLOCK_KV=24", "CU207", "a gemm of 24 depth: a multiple of 16 is needed"),
    ("sm80", "BLOCK_Q=128", "BLOCK_Q=64", "CU207", "64 rows, and 4 warps hold 4 fragment rows of 8 each"),
    ("sm90a", "Ring(STAGES)", "Ring(0)", "CU207", "this must be positive"),
    ("sm80", "1.0 / l", "1.0 / (2.0 - 2.0)", "CU207", "this divides by 0"),
    ("sm80", "Scalar(f32, host=D ** -0.5 * LOG2E)", "Scalar(i32, host=D ** -0.5)", "CU202", "the host gives f32, and this is i32"),
    ("sm80", "Tile(bf16, BLOCK_Q, HEAD_DIM", "Tile(bf16, Lq, HEAD_DIM", "CU207", "`Lq` is no compile-time integer"),
    # schedule
    ("sm80", "    tile_setup(tile)\n", "", "CU205", "the schedule does not end in `tile_setup(tile)`"),
    ("sm80", "    tile.hk = tile.h // (Hq // Hk)\n", "", "CU208", "the schedule leaves `tile.hk` without a value"),
    ("sm80", "    return tile\n", "    return keys\n", "CU205", "the schedule does not return `tile`"),
    # bodies
    ("sm80", "key_count(keys)\n    o", "key_count(tile)\n    o", "CU202", "this must be a key sequence, and is a query tile"),
    ("sm80", "count > 0", "count", "CU202", "this must be bool, and is i32"),
    ("sm80", "    zero(o)", "    zero(count)", "CU202", "this must be a register tile, and is i32"),
    ("sm80", "    zero(o)", "    zero(x)", "CU201", "`x` is not known here"),
    ("sm80", "    zero(o)", "    break", "CU205", "`break` leaves no loop here"),
    ("sm80", "gemm(smem.q, smem.k[slot].T)", "gemm(smem.q, smem.k[slot])", "CU209", "shapes do not fit: registers f32[128, 64] from"),
    ("sm80", "gemm(smem.q, smem.k[slot].T)", "gemm(smem.q, smem.k.T)", "CU206", "`smem.k` has slots: index it"),
    ("sm80", "smem.k[0]", "smem.k[2]", "CU206", "slot 2 of 2"),
    ("sm80", "probs = register(bf16, BLOCK_Q", "probs = register(bf16, BLOCK_KV", "CU209", "a cast keeps the shape"),
    ("sm80", "probs = register(bf16,", "probs = register(f16,", "CU209", "a gemm multiplies tiles of bf16 or of f16, not f16 and bf16"),
    ("sm80", "o = register(f32,", "o = register(bf16,", "CU209", "a gemm accumulates in f32, and this is bf16"),
    ("sm80", "src=lse)", "src=o)", "CU209", "registers f32[128, 128] cannot be stored to a view of one number a row of f32"),
    ("sm80", "p.q[tile.b, tile.h], row", "p.q[tile.b], row", "CU206", "a view of `p.q` is `p.q[batch, head]`"),
    ("sm80", "present(p.lse)", "present(p.o)", "CU202", "`present` does not apply to this"),
    ("sm80", "wait_group(1)", "wait_group(8)", "CU207", "8 is outside of 0..7"),
    ("sm80", "score(s, n * BLOCK_KV, tile)", "score(s, tile)", "CU206", "`score` takes 3 arguments, not 2"),
    ("sm80", "row=tile.q_start)", "row=1.0)", "CU202", "this must be an integer, and is f32"),
    ("sm90a", "smem.work_full, 1)", "smem.work, 1)", "CU202", "this must be a barrier, and is i32"),
    ("sm90a", "q=TensorMap(", "q=Global(", "CU202", "a copy from global memory takes no signal"),
    ("sm90a", "o=TensorMap(", "o=Global(", "CU209", "a shared tile is stored to a tensor map of its type"),
    ("sm90a", "o=Tile(bf16,", "o=Tile(i32,", "CU209", "shared i32[64, 128] and registers f32[64, 128] are not of one type"),
    ("sm90a", "ring_next(k_ring)", "ring_next(count)", "CU202", "this must be a ring, and is i32"),
    # state
    ("sm80", "    row.m = -inf\n", "", "CU208", "`row.m` has no value here: row_init before does not write it"),
    ("sm80", "    row.m = m_new\n", "", "CU208", "`row.m` never takes in a key tile"),
    ("sm80", "row_state(\n", "row_state(\n    x=Row(f32),\n", "CU208", "`row.x` is never read"),
    ("sm80", "tile_state()", "tile_state(\n    x=Scalar(f32),\n)", "CU208", "`tile.x` has no value: `tile_setup` does not write it"),
    # the pipeline
    ("sm80", "    zero(o)\n", "", "CU208", "`o` is accumulated into, and nothing wrote it"),
    ("sm80", "    row_init(row, tile)\n", "", "CU208", "`row_update` runs before `row_init`"),
    ("sm80", "        score(s, n * BLOCK_KV, tile)\n", "", "CU214", "`mask` of a tile that `score` has not run on"),
    ("sm80", "if key_masked(keys, t):", "if t > 0:", "CU214", "`row_update` of a tile that `mask` has not run on"),
    ("sm80", "range(0, ROWS)", "range(1, ROWS)", "CU214", "`s` is cast before `row_probs` of its fragment row 0"),
    ("sm80", "    row_rescale(o, row, tile)\n", "    row_rescale(o, row, tile)\n        row_update(s, row, n * BLOCK_KV, tile)\n", "CU214", "`row_update` runs twice on one score tile"),
    ("sm80", "        row_rescale(o, row, tile)\n", "", "CU214", "`o` is accumulated into without the `row_rescale`"),
    ("sm80", "        cast(probs, s)\n", "", "CU208", "`probs` is multiplied, and nothing wrote it"),
    ("sm80", "        o += gemm(probs, smem.v[slot])\n", "", "CU214", "the last weights in `probs` are never multiplied with values"),
    ("sm80", "    store(p.o[tile.b, tile.h], row=tile.q_start, src=o)\n", "", "CU214", "`o` is finalized and never stored"),
    ("sm90a", "                    cast(probs, s)\n", "", "CU214", "`probs` is multiplied a second time, or before its cast"),
    ("sm90a", "    row_finalize(o, lse, row, tile)", "    row_finalize(o, lse, row, tile)\n            row_finalize(o, lse, row, tile)", "CU214", "`o` is finalized twice"),
    # mbarriers
    ("sm90a", "        barrier_init(smem.work_full, 1)\n", "", "CU210", "`work_full` is never initialised"),
    ("sm90a", "        barrier_init(smem.work_full, 1)\n", "        barrier_init(smem.work_full, 1)\n        barrier_init(smem.work_full, 1)\n", "CU210", "this barrier is initialised twice"),
    ("sm90a", "    if thread == 0:\n        for x", "    if warpgroup == 0:\n        for x", "CU210", "128 threads initialise this barrier"),
    ("sm90a", "        barrier_init_fence()\n", "", "CU210", "no fence makes this initialisation visible"),
    ("sm90a", "    block_sync()\n", "", "CU210", "a barrier is used before all threads see it"),
    ("sm90a", "smem.k_empty[x], CONSUMERS)", "smem.k_empty[x], 1)", "CU211", "`k_empty[0]` completes after 1 arrivals, and 2 threads arrive"),
    ("sm90a", "smem.work_empty, CONSUMERS * 128)", "smem.work_empty, CONSUMERS)", "CU211", "`work_empty` completes after 2 arrivals, and 256 threads arrive"),
    ("sm90a", "                barrier_wait(smem.q_full[q_slot], q_ring.phase)\n", "", "CU211", "nothing waits on `q_full`"),
    ("sm90a", "barrier_wait(smem.v_full[v_ring.slot], v_ring.phase)\n                for", "for", "CU212", "`smem.v[v_slot]` is read, and no wait for its copy comes before"),
    ("sm90a", "bytes(smem.k))", "bytes(smem.k) // 2)", "CU213", "this expects 16384 bytes more, and the copy brings 32768"),
    ("sm90a", "bytes(smem.v))", "bytes(smem.v) * 2)", "CU213", "this expects 32768 bytes that no copy brings"),
    ("sm90a", "                        barrier_expect(smem.v_full[v_ring.slot], bytes(smem.v))\n", "", "CU213", "the barrier of this copy does not expect its bytes"),
    ("sm90a", "barrier_arrive(smem.v_empty[v_slot])", "barrier_arrive(smem.v_empty[0])", "CU215", "what this waits for is never handed on"),
    ("sm90a", "                smem.work_b = tile.b\n", "                smem.work_b = tile.b\n                smem.work_b = tile.b\n", "CU212", "`smem.work_b` is written, and no wait for its release"),
    ("sm90a", "q_ring = Ring(2)", "q_ring = Ring(1)", "CU212", "`smem.q[free]` is written, and no wait for its release"),
    ("sm90a", "                    for w in range(0, CONSUMERS):\n", "                    ring_next(work_ring)\n                    for w in range(0, CONSUMERS):\n", "CU212", "`smem.q[free]` is written, and no wait for its release"),
    # wgmma, registers, workers
    ("sm90a", "wgmma_fence()\n                o", "o", "CU216", "wgmma uses `o`, and no fence follows what code did to it"),
    ("sm90a", "                wgmma_commit()\n                wgmma_wait(0)\n                if leader:\n                    barrier_arrive(smem.v_empty", "                wgmma_wait(0)\n                if leader:\n                    barrier_arrive(smem.v_empty", "CU222", "this wgmma is not committed before the wait"),
    ("sm90a", "registers_release(40)", "registers_release(48)", "CU218", "the warpgroups ask for 65536 registers together"),
    ("sm90a", "        registers_release(40)\n", "", "CU218", "warpgroup 0 keeps its register count, others change theirs"),
    ("sm90a", "registers_take(232)", "registers_take(120)", "CU218", "120 registers are less than the 168 of the launch"),
    ("sm90a", "registers_take(232)", "registers_take(233)", "CU207", "a register count is a multiple of 8"),
    ("sm90a", "named_sync(NEXT_TURN + wg, 256)", "named_sync(NEXT_TURN + wg, 128)", "CU219", "named barrier 2 counts 128 threads, and each turn 256 come"),
    ("sm90a", "        if wg == 0:\n            named_arrive(NEXT_TURN, 256)\n", "", "CU219", "nobody can be the first at named barrier 2: all wait in a circle"),
    ("sm90a", "named_arrive(NEXT_TURN, 256)", "named_arrive(NEXT_TURN, 128)", "CU219", "two counts at named barrier 2"),
    ("sm90a", "NEXT_TURN=2", "NEXT_TURN=15", "CU219", "a named barrier is one of 1 to 15, known from the thread alone"),
    ("sm90a", "                wgmma_wait(0)\n                if leader:\n                    barrier_arrive(smem.k_empty", "                if leader:\n                    barrier_arrive(smem.k_empty", "CU220", "one thread arrives for its team, which may still be reading"),
    # budgets, keys, ranges
    ("sm90a", "STAGES=2", "STAGES=4", "CU221", "the block takes 360644 bytes of shared memory"),
    ("sm90a", "            if present(p.counters):\n                finish_counters(p.counters)\n", "", "CU223", "`p.counters` is drawn from and never finished"),
    ("sm90a", "key_tile(keys, t + 1)", "key_tile(keys, t)", "CU217", "the copy of `p.k` walks the steps 0, 0 of a key sequence of 2"),
    ("sm90a", "for t in range(1, count)", "for t in range(1, count - 1)", "CU217", "`score` walks the steps 0 of a key sequence of 2"),
    ("sm80", "for t in range(0, count):", "for t in range(0, 1000000000):", "CU267", "the loop takes more than 20000 statements where there are 0 key tiles"),
    ("sm80", "s = where(j < Lk, s, -inf)", "s = where((i * Lk + j) % 3 == 0, s, -inf)", "CU224", "`i * Lk` reaches"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "code", "message"), FAULTS, ids=lambda x: str(x)[:24])
def test_fault(name: str, old: str, new: str, code: str, message: str) -> None:
    faults = changed(name, (old, new))
    found = [f for f in faults if f.code == code and f.message.startswith(message)]
    assert found, [f"{f.code} {f.message}" for f in faults]
    assert all(f.span.file.name == f"{name}.cuir" for f in faults)


@pytest.mark.parametrize(
    ("condition", "body", "exact"),
    [
        ("row.o_scale != 1.0", "o = o * row.o_scale", True),
        ("1.0 != row.o_scale", "o = row.o_scale * o", True),
        ("(row.o_scale != 1.0) | (row.m < 0.0)", "o = o * row.o_scale", True),
        ("row.m < 0.0", "o = where(row.m < 0.0, 0.0, o)", True),
        ("row.o_scale != 1.0", "f = row.o_scale\n        o = o * f", True),
        ("row.o_scale != 1.0", "o = o * row.m", False),
        ("row.o_scale < 0.999", "o = o * row.o_scale", False),
        ("(row.o_scale != 1.0) & (row.m < 0.0)", "o = o * row.o_scale", False),
        ("row.m < 0.0", "o = where(row.m < 1.0, 0.0, o)", False),
        ("row.m < 0.0", "o = where(row.m < 0.0, o, 0.0)", False),
        ("row.o_scale != 0.0", "o = o + row.o_scale", False),
        ("row.o_scale != 1.0", "o = o * row.o_scale\n        o = o * 2.0", False),
    ],
)
def test_skips_are_exact(condition: str, body: str, exact: bool) -> None:
    faults = changed("sm80", ("any_lane(row.o_scale != 1.0)", f"any_lane({condition})"), ("o = o * row.o_scale", body))
    assert [f.code for f in faults] == ([] if exact else ["CU225"])


def test_duplicate_fields_of_a_built_kernel() -> None:
    kernel = golden_kernel("sm80")
    twice = replace(kernel, shared=(*kernel.shared, kernel.shared[0]))
    assert [f.message for f in verify(twice)] == ["`q` stands twice in `shared`"]


def test_wide_integers_are_in_range() -> None:
    edit = ("s = where(j < Lk, s, -inf)", "s = where((i64(i) * Lk + j) % 3 == 0, s, -inf)")
    assert changed("sm80", edit) == ()


def test_ranges_hold_at_smaller_sizes() -> None:
    text = golden_file("sm80").text.replace("j < Lk", "i * Lk + j < 9")
    kernel = parse(SourceFile.from_text("k", text))
    small = {**LIMITS, "Lq": 8192, "Lk": 8192}
    assert {d.code for d in (*check_region_ranges(kernel), *check_body_ranges(kernel))} == {"CU224"}
    assert [*check_region_ranges(kernel, small), *check_body_ranges(kernel, small)] == []


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ("s = where(i * Lk > j, s, -inf)", []),
        ("at = i * Lk\n    s = where(at + at > j, s, -inf)", []),
        ("at = i * Lk\n    s = where(at + at + at > j, s, -inf)", ["at + at + at"]),
        ("at = i\n    at = i * 3\n    s = where(at * Lk > j, s, -inf)", []),
        ("at = tile.h * 3\n    s = where((at + Lq) * 2048 > j, s, -inf)", ["(at + Lq) * 2048"]),
        ("at = i\n    at = j\n    s = where(at * Lk > j, s, -inf)", ["at * Lk"]),
        ("s = where(i * Lq > j, s, -inf)", ["i * Lq"]),
    ],
)
def test_a_parameter_keeps_integers_in_range(body: str, faults: list[str]) -> None:
    """What a launch cannot put into 32 bits bounds what grows no faster, also by way of locals."""
    text = golden_file("sm80").text.replace("s = where(j < Lk, s, -inf)", body)
    text = text.replace(
        "variant_params(\n", "variant_params(\n    most=Scalar(i32, host=2 * Lk * Lq + 2048 * Lk + 9),\n"
    )
    found = check_region_ranges(parse(SourceFile.from_text("k", text)))
    assert [*dict.fromkeys(d.span.text for d in found)] == faults
    if body.startswith("s = where(i * Lk"):
        of_a_capture = parse(SourceFile.from_text("k", text.replace("host=2 * Lk", "host=far * Lk")))
        assert any(check_region_ranges(of_a_capture))


def test_whole_multiples_below_an_index_are_in_range() -> None:
    assert changed("sm80", ("s = where(j < Lk", "s = where(j // (Lk // Lq + 1) * (Lk // Lq + 1) > i")) == ()


@pytest.mark.parametrize(
    ("mask", "bound"),
    [
        ("p.n[j] == p.n[i]", LARGEST),
        ("j < p.shift", LARGEST),
        ("j - i < p.shift - 3", 2**30),
        ("p.n[j] * p.n[j] > i", 2**15),
        ("(p.n[j] - p.n[i]) * p.shift > i", 2**14),
        ("j // p.n[i] * 4 > i", LARGEST),
        ("i64(p.n[j]) * p.n[j] > i", LARGEST),
        ("tile.n * 2 > i", 2**29),
    ],
)
def test_how_large_captured_integers_may_be(mask: str, bound: int) -> None:
    text = golden_file("sm80").text.replace("where(j < Lk, s, -inf)", f"where((j < Lk) & ({mask}), s, -inf)")
    text = text.replace(
        "variant_params(\n", "variant_params(\n    n=Captured(i32, Lk),\n    shift=Scalar(i32, host=far),\n"
    )
    text = text.replace("tile_state()", "tile_state(n=Scalar(i32))").replace(
        "def tile_setup(tile):\n    pass", "def tile_setup(tile):\n    tile.n = p.n[tile.h]"
    )
    assert captured_bound(parse(SourceFile.from_text("k", text))) == bound


def test_faults_come_in_the_order_of_the_text() -> None:
    faults = changed("sm80", ("    zero(o)", "    zero(x)"), ("m_safe = where(", "m_safe = wher_ * where("))
    assert [f.span.location[0] for f in faults] == sorted(f.span.location[0] for f in faults)
    assert len(faults) == 2


LEFT_TO_ENGINES = {
    "sm80": {"commit()": 4, "wait_group(1)": 2, "block_sync()": 2, "copy_async(smem.q": 1},
    "sm90a": {
        "ring_next": 11, "wgmma_commit()": 1, "wgmma_wait(0)": 1, "barrier_arrive(smem.work_full)": 1, "bulk_wait_read(0)": 2,
        "named_sync(STAGING": 2, "async_proxy_fence()": 1, "store_async": 1, "bulk_commit()": 1,
    },
}  # fmt: skip
"""Deletions that no static rule shows: the order of cp.async groups, the steps of rings, groups of wgmma that merge, the message
that says the end, what leaves through shared memory."""


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_other_deletion_is_a_fault(name: str) -> None:
    left: dict[str, int] = {}
    for stmt, kernel in deletions(golden_kernel(name)):
        if not verify(kernel):
            text = print_stmts((stmt,))
            key = next((k for k in LEFT_TO_ENGINES[name] if text.startswith(k)), text)
            left[key] = left.get(key, 0) + 1
    assert left == LEFT_TO_ENGINES[name]


def test_errors_of_a_verifier_render() -> None:
    faults = changed("sm80", ("    zero(o)\n", ""))
    assert str(CuError(*faults)).startswith("sm80.cuir:")
