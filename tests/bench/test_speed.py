"""The table of times, from made-up ones."""

from __future__ import annotations

from bench.speed import Row, all_ran, speed_faults, speed_table
from cubridge.backend.timing import Timing


def row(**timings: Timing) -> Row:
    return Row("full", "2,32,32,8192,8192,128", 2e12, {n.replace("_", " "): t for n, t in timings.items()})


RIGHT = row(SDPA_cuDNN=Timing(4.0, 3.9, 4.2), sm80=Timing(5.0, 5.0, 5.0), sm90a=Timing(2.5, 2.5, 2.6))


def test_speeds_are_in_tflops_with_the_goal_beside() -> None:
    header, _, line = speed_table([RIGHT]).splitlines()
    assert [c.strip() for c in header.split("|")[1:-1]] == ["TFLOP/s", "SDPA cuDNN", "sm80", "sm90a", "goal"]
    assert [c.strip() for c in line.split("|")[1:-1]] == ["full", "500", "400", "800", "685"]


def test_a_kernel_of_ours_that_fails_fails_the_run() -> None:
    broken = row(sm80=Timing(fault="CuError: no"), sm90a=Timing(2.5, 2.5, 2.6), Flex=Timing(fault="RuntimeError: x"))
    assert all_ran([RIGHT]) and not all_ran([RIGHT, broken]) and not all_ran([row(sm80=Timing(1.0, 1.0, 1.0))])
    assert speed_faults([broken]) == ["full sm80: CuError: no", "full Flex: RuntimeError: x"]
    assert speed_table([broken]).splitlines()[2].count("  ") > 2
