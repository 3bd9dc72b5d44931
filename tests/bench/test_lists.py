"""The table of lists, of a small problem on the emulator with a clock that does not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from bench.build import Built, Task
from bench.lists import list_rows, list_table
from bench.packed import packed_rows, packed_table
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.ir.spec import Shape
from tests.support.variants import VARIANTS

SHAPE = Shape(1, 2, 2, 192, 192, 64)


def clock(work: Callable[[], object], count: int) -> float:
    work()
    return float(count)


def test_lists_are_compared_and_timed() -> None:
    text = adapt_unchecked(VARIANTS["documents_causal"].path, "sm80").text
    captures = {"doc": (torch.arange(192) // 64).expand(1, -1).int()}
    built = Built(Task("documents_causal", "bf16", 64, SHAPE), kernels={"sm80": text}, captures=captures)
    plain = replace(built, kernels={}, task=replace(built.task, long=None))
    rows = list(list_rows([built, plain], PtxDevice(makes_lists=True, schedules=ONE_SCHEDULE), 1, clock))
    assert [(r.kernel, r.data, r.same, r.share) for r in rows] == [
        ("sm80", "as timed", True, 1.0),
        ("sm80", "shuffled", True, 1.0),
    ]
    assert rows[0].tflops == 4 * 2 * 64 * 3 * (64 * 65 / 2) / 1e9
    assert (rows[0].visited, rows[0].masked) == (3 / 6, 3 / 6)
    assert rows[1].visited > rows[0].visited
    with pytest.raises(RuntimeError, match="call: CuError"):
        list(list_rows([replace(built, captures={"doc": captures["doc"].long()})], PtxDevice(), 1, clock))
    (packed,) = packed_rows([built, plain], PtxDevice(makes_lists=True, schedules=ONE_SCHEDULE), 1, clock, count=2)
    assert (packed.keys, packed.same, packed.ratio) == (384, True, 1.0)
    assert "NO" in packed_table([replace(packed, same=False)])
    wrong = list_table([replace(rows[0], same=False)])
    assert "NO" in wrong and "50.0%" in wrong
