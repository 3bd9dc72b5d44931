"""Faults as edits of the text: each reads back as that fault, and what the text cannot say is not edited."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from cubridge.driver.kernels import FOLDER, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.suites.fault_emulator import FaultTexts
from cubridge.judge.faults.catalog import Fault, enumerate_faults
from cubridge.judge.faults.edits import Unsayable

HELPER = "DEVICE void arrive_all() { cp_async_wait<1>(); block_sync(); }\n\n"
"""The waits of the main loop, as a function of the kernel's own."""


@cache
def texts_of(kernel: str) -> tuple[FaultTexts, tuple[Fault, ...]]:
    chosen = choose_kernel(kernel)
    source = lift_kernel(chosen, "bf16", 64).kernel
    return FaultTexts.of(chosen, "bf16", 64, source), tuple(enumerate_faults(source))


def written(kernel: str, name: str) -> tuple[str, str]:
    """The lines of a kernel that a fault changes, before and after, blanks apart."""
    texts, faults = texts_of(kernel)
    after = texts.write(next(f for f in faults if str(f) == name)).text.splitlines()
    before = texts.kernel.text.source.text.splitlines()
    changed = [(a.strip(), b.strip()) for a, b in zip(before, after, strict=True) if a != b]
    return " ".join(a for a, _ in changed), " ".join(b for _, b in changed)


@pytest.mark.parametrize(
    "kernel,fault,before,after",
    [
        ("sm80", "delete: zero(o)", "zero(o);", "{}"),
        ("sm80", "duplicate: commit()", "cp_async_commit();", "{ cp_async_commit(); cp_async_commit(); }"),
        ("sm80", "count - 1: wait_group(0)", "cp_async_wait<1>();", "cp_async_wait<0>();"),
        ("sm80", "index + 1: n = keys.hi - 1 - t + 1", "keys.hi - 1 - t;", "((keys.hi - 1 - t) + 1);"),
        ("sm80", "index - 1: full_hi = Lk // BLOCK_KV - 1", "p.len_kv / BLOCK_KV;", "((p.len_kv / BLOCK_KV) - 1);"),
        ("sm80", "operand swapped: s = gemm(smem.k[slot], smem.q.T)", "smem.q, smem.k[slot]", "smem.k[slot], smem.q"),
        ("sm90a", "slot + 1: barrier_init(smem.k_full[(x + 1) % STAGES], 1)", "[x]", "[((x + 1) % STAGES)]"),
        (
            "sm90a", "tile + 1: store_async(p.o[tile.b, tile.h], row=tile.q_start + wg * 64 + 64, src=smem.o[wg])",
            "tile.q_start + wg * 64)", "((tile.q_start + wg * 64) + 64))",
        ),
        ("sm90a", "slot + 1: named_arrive(NEXT_TURN + 1, CONSUMER_THREADS)", "(NEXT_TURN,", "((NEXT_TURN + 1),"),
        ("sm90a", "phase flipped: barrier_wait(smem.work_empty, work_ring.phase)", "work_ring.phase ^ 1", "work_ring.phase"),
        ("sm90a", "operand swapped: barrier_wait(smem.work_full, work_ring.phase ^ 1)", "work_empty", "work_full"),
    ],
)  # fmt: skip
def test_edits(kernel: str, fault: str, before: str, after: str) -> None:
    old, new = written(kernel, fault)
    assert before in old
    assert new == old.replace(before, after, 1)


def test_neighbours_are_swapped_where_they_stand() -> None:
    old, new = written("sm80", "swap with next: block_sync()  <->  if t + 1 < count:")
    assert old.startswith("block_sync();        // for every thread")
    assert new.startswith(
        "if (t + 1 < count) load_tile_async(smem.k[slot ^ 1], k_gmem, key_tile(keys, t + 1, p) * BLOCK_KV);  "
    )
    assert new.endswith(" block_sync();")


def test_a_sample_reads_back() -> None:
    """`write` itself compares the kernels node by node."""
    texts, faults = texts_of("sm80")
    original = texts.kernel.text.source
    said = 0
    for fault in faults[::24]:
        try:
            assert texts.write(fault).data != original.data
            said += 1
        except Unsayable:
            pass
    assert said >= 8


@pytest.mark.parametrize(
    "kernel,fault,reason",
    [
        ("sm90a", "delete: k_ring = Ring(STAGES)", "no C++ statement of its own"),
        ("sm90a", "delete: k_ring = Ring(STAGES)", "no C++ statement of its own"),
        ("sm80", "operand swapped: s += gemm(smem.q, smem.k[slot].T)", "no expression of the text"),
        (
            "sm80",
            "operand swapped: store(p.q[tile.b, tile.h], row=tile.q_start, src=o)",
            "`p.o` has no words of its own",
        ),
        ("sm80", "delete: lo = 0", "refused: `lo` is not declared"),
    ],
)
def test_what_the_text_cannot_say(kernel: str, fault: str, reason: str) -> None:
    with pytest.raises(Unsayable, match=reason.replace("+", r"\+")):
        written(kernel, fault)


def test_a_statement_that_stands_for_two_is_not_edited_as_one(tmp_path: Path) -> None:
    text = (FOLDER / "sm80" / "attention_forward.cu").read_text()
    lines = text.splitlines()
    waits = [x for x, line in enumerate(lines) if line.strip().startswith("cp_async_wait<1>")]
    for x in reversed(waits):
        assert lines[x + 1].strip().startswith("block_sync()")
        lines[x : x + 2] = ["        arrive_all();"]
    kernel = tmp_path / "kernel.cu"
    kernel.write_text("\n".join(lines).replace("KERNEL(", HELPER + "KERNEL(", 1))
    with pytest.raises(Unsayable, match="says something else"):
        written(str(kernel), "count - 1: wait_group(0)")
