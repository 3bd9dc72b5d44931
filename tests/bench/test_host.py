"""The measurement of host time, on the device that launches nothing."""

from __future__ import annotations

import pytest

import bench.host
from bench.host import CASES, host_table, host_times


def test_a_case_is_timed_and_compared_with_its_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.host, "CASES", {"slopes": CASES["slopes, as they are"]})
    monkeypatch.setattr(bench.host, "ROUNDS", 1)
    (row,) = host_times(None, ("sm80",))
    assert 0 < row.least <= row.median and row.goal == 40
    assert "slopes, sm80" in host_table([row])
