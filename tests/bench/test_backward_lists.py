"""The table of lists of query tiles, of a small problem on the emulator with a clock that does not run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench.backward_lists import backward_list_rows, backward_list_table
from bench.backward_speed import Timed
from cubridge.backend.launch.tile_plan import Maker
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.backward import lower_backward
from cubridge.ir.spec import Shape
from tests.bench.test_lists import clock
from tests.support.variants import VARIANTS

SHAPE = Shape(1, 1, 1, 192, 192, 64)


@pytest.mark.slow
def test_lists_are_compared_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    adapted = adapt_unchecked(VARIANTS["documents_causal"].path, "sm90a", SHAPE)
    captures = {"doc": (torch.arange(192) // 64).expand(1, -1).int()}
    timed = Timed("documents_causal", SHAPE, adapted.text, lower_backward(adapted).texts, captures)
    device = PtxDevice(makes_lists=True, schedules=ONE_SCHEDULE)
    (row,) = backward_list_rows([timed, replace(timed, fault="not built")], device, 1, clock)
    assert (row.same, row.visited, row.masked, row.share) == (True, 3 / 6, 3 / 6, 1.0)
    assert "50.0%" in backward_list_table([row])
    monkeypatch.setattr(Maker, "make", lambda *of: torch.zeros(2, 5, dtype=torch.int16))
    (wrong,) = backward_list_rows([timed], device, 1, clock)
    assert not wrong.same and "NO" in backward_list_table([wrong])
