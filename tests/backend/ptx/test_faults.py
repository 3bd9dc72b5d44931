"""What the PTX machine rejects, and what it says: deleted statements, accesses out of bounds, texts that do not compile or end."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cubridge.backend.launch.device import KernelText
from cubridge.backend.ptx.machine import Schedule
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.parser import parse_expr
from tests.backend.ptx.running import launcher
from tests.kernels.emulated import faults, kernel_source, kernel_text, random_inputs, region_edit

FEW, MANY = (
    (1, 3, 1, 300, 200, 64),
    (1, 3, 1, 300, 330, 64),
)  # as many key tiles as a ring has slots, or more; several work tiles


def diagnostic_of(text: KernelText, captures: dict[str, Tensor] | None = None) -> Diagnostic:
    inputs = random_inputs((1, 2, 1, 130, 200, 64))
    with pytest.raises(CuError) as caught:
        launcher(text, timeout_s=3.0)(*inputs, captures or {}, lse=True)
    return caught.value.diagnostics[0]


def verdict(text: KernelText) -> tuple[str, str]:
    """Code and line of the first fault on either shape; `VALUE` for a wrong result."""
    for shape in (MANY, FEW):
        inputs = random_inputs(shape)
        try:
            out, lse = launcher(text)(*inputs, lse=True)
        except CuError as error:
            first = error.diagnostics[0]
            return first.code, first.span.text.split("//")[0].strip()
        if faults(out, lse, *inputs):
            return "VALUE", ""
    return "none", ""


def without(arch: str, statement: str, nth: int) -> KernelText:
    """The kernel without the nth occurrence (from 0) of a statement, its line kept."""
    text = kernel_text(arch, equal_work=False)
    parts = kernel_source(arch).text.split(statement)
    assert len(parts) > nth + 1, statement
    kept = statement.join(parts[: nth + 1]) + statement.join(("", *parts[nth + 1 :]))[len(statement) :]
    source = replace(text.source, data=kept.encode())
    return replace(text, source=source)


QK, QK_ASYNC = "gemm_qk(s, smem.q, smem.k[slot]);", "gemm_qk_async(s, smem.q[q_slot], smem.k[k_ring.slot]);"
ROW_MAX = "const float m_max = fmaxf(row.m[r], row_max(s[r]));"
PASS_TURN = "named_arrive(NEXT_TURN + (wg ^ 1), CONSUMER_THREADS);"
PV, PV_ASYNC = "gemm_pv(o, probs, smem.v[slot]);", "gemm_pv_async(o, probs, smem.v[v_ring.slot]);"


@pytest.mark.parametrize(
    ("arch", "statement", "nth", "code", "line"),
    [
        ("sm80", "cp_async_wait<1>();", 0, "CU833", QK),
        ("sm80", "block_sync();", 0, "CU833", QK),
        ("sm80", "cp_async_commit();", 0, "CU833", QK),
        ("sm80", "cp_async_wait<1>();", 1, "CU833", PV),
        ("sm80", "block_sync();", 1, "CU833", PV),
        ("sm80", "load_tile_async(smem.q, q_gmem, tile.q_start);", 0, "CU833", QK),
        ("sm80", "zero(o);", 0, "CU833", ""),
        ("sm80", "row_init(row, tile, p);", 0, "CU833", ""),
        ("sm90a", "barrier_init_fence();", 0, "CU833", ""),
        ("sm90a", "block_sync();", 0, "CU833", "barrier_wait(smem.work_full, work_ring.phase);"),
        ("sm90a", "registers_release<40>();", 0, "CU832", ""),
        ("sm90a", "registers_take<232>();", 0, "CU834", "registers_release<40>();"),
        ("sm90a", "barrier_wait(smem.work_empty, work_ring.phase ^ 1);", 0, "CU832", ""),
        ("sm90a", "barrier_wait(smem.k_empty[k_ring.slot], k_ring.phase ^ 1);", 0, "CU834", ""),
        ("sm90a", "barrier_expect_bytes(smem.q_full[free], SharedTile<64, HEAD_DIM>::BYTES);", 0, "CU832", ""),
        ("sm90a", "if (p.counters != nullptr) finish_counters(p.counters);", 0, "CU834", ""),
        ("sm90a", "barrier_wait(smem.k_full[k_ring.slot], k_ring.phase);", 1, "CU833", QK_ASYNC),
        ("sm90a", "named_sync(NEXT_TURN + wg, CONSUMER_THREADS);", 0, "CU834", PASS_TURN),
        ("sm90a", "wgmma_fence();", 0, "CU833", QK_ASYNC),
        ("sm90a", "wgmma_fence();", 2, "CU833", PV_ASYNC),
        ("sm90a", "wgmma_wait<1>();", 0, "CU833", ROW_MAX),
        ("sm90a", "wgmma_wait<0>();", 1, "CU833", ""),
        ("sm90a", "if (leader) barrier_arrive(smem.v_empty[v_slot]);", 0, "CU832", ""),
        ("sm90a", "async_proxy_fence();", 0, "CU833", ""),
        ("sm90a", "if (leader) bulk_wait_read<0>();", 0, "CU833", ""),
        ("sm90a", "if (leader) bulk_wait_read<0>();", 1, "CU834", ""),
        ("sm90a", "named_sync(STAGING + wg, WARPGROUP);", 0, "CU833", ""),
        ("sm90a", "named_sync(STAGING + wg, WARPGROUP);", 1, "CU833", ""),
        ("sm90a", "bulk_commit();", 0, "CU833", ""),
        ("sm90a", "row_rescale(o, row, tile, p);", 0, "none", ""),  # random data never rescales: the steep inputs do
    ],
)  # fmt: skip
def test_deleted_statements(arch: str, statement: str, nth: int, code: str, line: str) -> None:
    found = verdict(without(arch, statement, nth))
    assert found[0] == code
    if line:
        assert found[1] == line


def test_the_kernels_themselves_pass() -> None:
    assert verdict(kernel_text("sm80")) == verdict(kernel_text("sm90a")) == ("none", "")


FINISH = "if (p.counters != nullptr) finish_counters(p.counters);"


FENCE = "memory_fence();"
HOSTILE = (Schedule.HOSTILE,)
WORK = (1, 6, 2, 150, 600, 64)  # in this order the block that finishes last has not drawn last


@pytest.mark.parametrize(("before", "after", "refused"), [(FENCE, FENCE, False), (FENCE, "", True), ("", FENCE, True)])
def test_counters_are_reset_after_the_adds_of_all_blocks(before: str, after: str, refused: bool) -> None:
    """Fences on both sides of the test who is last order its stores after those adds; one alone orders nothing."""
    reset = f"{before} if (atomic_add(p.counters + 1, 1) == grid_size_x() - 1) {{ {after} p.counters[0] = p.counters[1] = 0; }}"
    text = kernel_text("sm90a", (FINISH, f"if (p.counters != nullptr) {{ {reset} }}"), equal_work=False)
    if not refused:
        launcher(text, HOSTILE)(*random_inputs(WORK))
        launcher(kernel_text("sm90a", equal_work=False), HOSTILE)(*random_inputs(WORK))
        return
    with pytest.raises(CuError) as caught:
        launcher(text, HOSTILE)(*random_inputs(WORK))
    found = caught.value.diagnostics[0]
    assert found.code == "CU833" and "overwritten without an order after the last write" in found.message


SLOPE = "    const float* slope;    // @captured slope[Hq]\n    float exponent_scale;  // @host D ** -0.5 * LOG2E\n    "


def reads_slope(index: str) -> KernelText:
    setup = f"DEVICE void tile_setup(WorkTile& tile, const Params& p) {{\n    tile.slope = p.slope[{index}];\n}}\n"
    state = "    float slope;\n    "
    score = (
        "DEVICE void score(float (&s)[ROWS][S_COLS], int kv_start, const WorkTile& tile, const Params& p) {\n"
        "    for (int r = 0; r < ROWS; ++r)\n        for (int c = 0; c < S_COLS; ++c) s[r][c] += tile.slope;\n}\n"
    )
    bodies = {"params": SLOPE, "tile_state": state, "tile_setup": setup, "score": score}
    return kernel_text("sm90a", *(region_edit("sm90a", name, body) for name, body in bodies.items()))


def test_reads_past_a_captured_tensor() -> None:
    found = diagnostic_of(reads_slope("tile.h + 1"), {"slope": torch.tensor([1.0, 2.0])})
    assert found.code == "CU835" and "0 bytes past the end of `slope`" in found.message
    assert "p.slope[tile.h + 1]" in found.span.text


def test_writes_to_an_input() -> None:
    text = kernel_text(
        "sm80", ("    zero(o);\n", "    zero(o);\n    if (thread_index() == 0) *const_cast<half_t*>(p.k) = 0;\n")
    )
    found = diagnostic_of(text)
    assert (
        found.code == "CU835"
        and "byte 0 of `k`, which is an input" in found.message
        and "const_cast" in found.span.text
    )


def test_copies_past_a_tensor() -> None:
    view = "p.k_row, tile.b, tile.hk, p.len_kv"
    found = diagnostic_of(kernel_text("sm80", (f"{view});", f"{view} + 1);")))
    assert (
        found.code == "CU835" and "past the end of `k`" in found.message and "load_tile_async(smem.k" in found.span.text
    )


def test_index_outside_a_register_array() -> None:
    """The compiler has made something of it by now: the numbers are wrong."""
    text = kernel_text("sm90a", ("s[r][c] = exp2_approx(s[r][c] *", "s[r][c] = exp2_approx(s[r][c + 1] *"))
    assert verdict(text) == ("VALUE", "")


def test_division_by_zero() -> None:
    found = diagnostic_of(kernel_text("sm80", ("tile.h = head % p.heads_q;", "tile.h = head % (p.batch - 1);")))
    assert found.code == "CU836" and "divided by zero" in found.message


def test_warp_operation_in_one_thread() -> None:
    old = "if (leader) barrier_arrive(smem.v_empty[v_slot]);"
    new = "if (leader) barrier_arrive(smem.v_empty[uniform(v_slot)]);"
    found = diagnostic_of(kernel_text("sm90a", (old, new)))
    assert found.code == "CU832" and "uniform(v_slot)" in found.span.text
    assert "1 threads from thread 128 on wait here for the other lanes of their warp" in found.notes[0].message


def test_text_that_does_not_compile() -> None:
    found = diagnostic_of(kernel_text("sm80", ("row.l[r] = 0.f;", "row.sum[r] = 0.f;")))
    assert found.code == "CU831" and "has no member" in found.message and found.span.text == "sum"


def test_kernel_that_does_not_end() -> None:
    found = diagnostic_of(
        kernel_text("sm80", ("    zero(o);\n", "    zero(o);\n    for (int x = 0; x >= 0; x ^= 1) {}\n"))
    )
    assert found.code == "CU837"


def test_contract_that_disagrees_with_its_kernel() -> None:
    text = kernel_text("sm80")
    wrong_block = replace(text, contract=replace(text.contract, block=parse_expr("WARPS * 64")))
    assert "written for 128 threads" in diagnostic_of(wrong_block).message
    shared = replace(text, contract=replace(text.contract, shared_bytes=parse_expr("4096")))
    assert "the block has 4096" in diagnostic_of(shared).message
    fields = replace(text, contract=replace(text.contract, params=text.contract.params[:-3]))
    assert "Params has" in diagnostic_of(fields).message
