"""The table of judges, of two faults: one that all of them tell, one that no text says."""

from __future__ import annotations

import pytest

from bench.judges import judge_faults
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.judge.faults.catalog import enumerate_faults

TOLD = "operand swapped: copy_async(smem.k, p.q[tile.b, tile.h], row=tile.q_start)"
UNSAID = "slot + 1: o += gemm(probs, smem.v[(slot + 1) % STAGES])"


def test_each_judge_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(fault) for fault in enumerate_faults(lift_kernel(choose_kernel("sm80"), "bf16", 64).kernel)]
    first, second = names.index(TOLD), names.index(UNSAID)
    judge_faults("sm80", second - first, first)
    said = capsys.readouterr()
    rules, order, values, emulator = (line.split() for line in said.out.splitlines()[2:6])
    assert (rules, order) == (["rules", "1", "1", "0", "0"], ["order", "2", "0", "0", "0"])
    assert (values, emulator) == (["values", "2", "0", "0", "0"], ["emulator", "1", "0", "1", "0"])
    assert f"1 {TOLD}: {{'rules': 'CU206', 'order': 'CU251', 'values': 'CU316', 'emulator': 'CU831'}}" in said.err
