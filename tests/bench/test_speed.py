"""The table of times, from made-up ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.build import Built, Task
from bench.row import Row, faults_of
from bench.speed import Measure, all_ran, speed_table, time_all
from bench.variants import VARIANTS
from cubridge.backend.gpu.timing import Timing
from cubridge.backend.ptx.device import PtxDevice
from cubridge.ir.spec import Shape


def row(**timings: Timing) -> Row:
    return Row("full", "2,32,32,8192,8192,128", 2e12, {n.replace("_", " "): t for n, t in timings.items()})


NAME = "full 2,32,32,8192,8192,128"
RIGHT = row(SDPA_cuDNN=Timing(4.0, 3.9, 4.2), sm80=Timing(5.0, 5.0, 5.0), sm90a=Timing(2.5, 2.5, 2.6))


def test_speeds_are_in_tflops_with_the_goal_beside() -> None:
    header, _, line = speed_table([RIGHT]).splitlines()
    assert [c.strip() for c in header.split("|")[1:-1]] == ["TFLOP/s", "SDPA cuDNN", "sm80", "sm90a", "goal"]
    assert [c.strip() for c in line.split("|")[1:-1]] == ["full", "500", "400", "800", "685"]


def test_a_kernel_of_ours_that_fails_fails_the_run() -> None:
    broken = row(sm80=Timing(fault="CuError: no"), sm90a=Timing(2.5, 2.5, 2.6), Flex=Timing(fault="RuntimeError: x"))
    assert all_ran([RIGHT]) and not all_ran([RIGHT, broken]) and not all_ran([row(sm80=Timing(1.0, 1.0, 1.0))])
    assert faults_of([broken]) == [f"{NAME} sm80: CuError: no", f"{NAME} Flex: RuntimeError: x"]
    assert speed_table([broken]).splitlines()[2].count("  ") > 2


def fake_clock(work: Callable[[], object], count: int) -> float:
    work()
    return float(count)


SHAPE = Shape(1, 2, 2, 64, 64, 64)


def test_a_variant_that_was_not_built_is_a_row_of_its_peers() -> None:
    """Every variant with arguments of its own, with nothing from `build` but why it failed."""
    names = ("attention_sink", "documents", "full")
    built = [
        Built(
            Task(n, "bf16", 64, SHAPE), faults=[f"{n} bf16 D=64 long sm80: CuError: no", f"{n} long sm90a: CuError: no"]
        )
        for n in names
    ]
    rows = time_all(built, PtxDevice(), Measure(("eager",), 1, clock=fake_clock))
    assert [(r.variant, r.fault) for r in rows] == [(n, None) for n in names]
    assert f"documents {SHAPE} sm80: RuntimeError: documents bf16 D=64 long sm80: CuError: no" in faults_of(rows)
    assert all(r.timings["sm80"].fault and r.timings["sm90a"].fault for r in rows) and not all_ran(rows)
    assert all(r.tflops("eager") is not None for r in rows)


def test_a_peer_or_a_variant_that_fails_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("sinks")

    wrong = replace(VARIANTS["relu"], constants={"SIZE": 1})
    monkeypatch.setattr("bench.peers.sdpa", broken)
    monkeypatch.setattr("bench.speed.VARIANTS", {**VARIANTS, "relu": wrong})
    built = [Built(Task(name, "bf16", 64, SHAPE)) for name in ("relu", "full")]
    rows = time_all(built, PtxDevice(), Measure(("eager", "sdpa"), 1, clock=fake_clock))
    assert rows[0].fault is not None and "sets no SIZE" in rows[0].fault and rows[0].timings == {}
    assert rows[1].timings["SDPA mask"].fault == "KeyError: 'sinks'" and rows[1].timings["eager"].fault is None
    assert faults_of(rows)[0].startswith(f"relu {SHAPE}: ValueError")
    assert f"full {SHAPE} SDPA mask: KeyError: 'sinks'" in faults_of(rows)
    assert [c.strip() for c in speed_table(rows).splitlines()[2].split("|")[1:-1]] == ["relu", "", "", "", "", "690"]
