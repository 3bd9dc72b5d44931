"""Cells are measured once, by runs that end when they like; on the CPU, with a clock that does not run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from bench import cells
from bench.build import Built, Task
from bench.cells import in_seconds, measure_cells
from bench.kept import Cell, Kept, Setup, setup_here
from bench.lengths import cells as length_cells
from bench.lengths import lengths_table, ratio, shapes
from bench.row import Row, faults_of
from bench.speed import Measure
from cubridge.backend.gpu.timing import Timing
from cubridge.backend.ptx.device import PtxDevice
from cubridge.ir.spec import Shape
from tests.bench.test_speed import fake_clock

WANTED = length_cells(shapes((64, 128), ((2, 1),), (64,), tokens=128), ["normal", "spikes"], ("full",))


@pytest.fixture(autouse=True)
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(wanted: Sequence[tuple[str, Shape]], arch: str, workers: int | None) -> list[Built]:
        return [Built(Task(name, "bf16", shape.D, shape), faults=["full sm80: no"]) for name, shape in wanted]

    monkeypatch.setattr(cells, "build_long", build)


def run(path: Path, peers: list[str], most: int = 9) -> tuple[Kept, list[str]]:
    said: list[str] = []
    kept = Kept(path, Setup(tuple(peers), "one machine"))
    measure = Measure(peers, 1, clock=fake_clock)
    in_time = iter([True] * (most + 1) + [False] * 9)
    measure_cells(WANTED, kept, PtxDevice(), measure, "sm_90a", in_time=lambda: next(in_time), say=said.append)
    return kept, said


def test_a_run_goes_on_where_another_ended(tmp_path: Path) -> None:
    path = tmp_path / "results" / "cells.jsonl"
    kept, said = run(path, ["eager"], most=2)
    assert [str(c) for c, _ in kept.of(WANTED)] == [str(c) for c in WANTED[:2]] and said[0] == "4 cells to measure"
    assert said[1] == "forward full 2,2,1,64,64,64 normal: eager 0, sm80 -, sm90a -"
    with path.open("a") as file:
        file.write('{"cell": "forw')  # killed
    kept, said = run(path, ["eager"])
    assert said[0] == "2 cells to measure" and kept.left(WANTED) == []
    again = Kept(path, kept.setup)
    assert again.left(WANTED) == []
    row = again.rows[str(WANTED[0])]
    assert row.timings["sm80"].fault == "RuntimeError: full sm80: no" and row.timings["eager"].median == 1.0
    assert run(path, ["eager"])[1] == ["0 cells to measure"]
    others = (Setup(("eager", "sdpa"), "one machine"), Setup(("eager",), "another"))
    assert [len(Kept(path, setup).left(WANTED)) for setup in others] == [4, 4]


def test_parts_become_one_table(tmp_path: Path) -> None:
    """Those of one setup alone."""
    whole, part, other = (tmp_path / name for name in ("whole", "part", "other"))
    run(whole, ["eager"])
    lines = whole.read_text().splitlines(keepends=True)
    whole.write_text("".join(lines[:3]))
    part.write_text(lines[3])
    assert Kept.read(whole, part).left(WANTED) == [] and len(Kept.read(whole).left(WANTED)) == 1
    run(other, ["sdpa"])
    with pytest.raises(ValueError, match="share no setup"):
        Kept.read(whole, other)


def test_a_setup_names_machine_and_versions() -> None:
    assert setup_here(["eager", "fa3"], PtxDevice()).machine.startswith(f"CPU, torch {version('torch')}")


def test_shapes_hold_the_same_number_of_rows() -> None:
    wanted = list(shapes())
    assert len(wanted) == len(set(wanted)) == 36 and {s.B * s.Lq for s in wanted} == {16384}
    assert next(shapes((32768,))).B == 1


def test_the_table_compares_ours_with_the_best_peer() -> None:
    times = {"SDPA cuDNN": Timing(4.0), "FA3": Timing(2.0), "sm80": Timing(1.0), "sm90a": Timing(2.5)}
    row = Row("full", "1,2,1,64,64,64", 1e12, times, {"FA3": 0.3})
    assert ratio(row) == pytest.approx(0.8) and ratio(Row("full", "", 1e12, {"sm90a": Timing(1.0)})) is None
    line = lengths_table([(Cell("forward", "full", Shape(1, 2, 1, 64, 64, 64)), row)]).splitlines()[-1]
    assert [c.strip() for c in line.split("|")[1:-1]] == [
        "full", "64", "2/1", "1", "64", "normal", "250", "500", "1000", "400", "0.8",
    ]  # fmt: skip
    assert faults_of([row]) == ["full 1,2,1,64,64,64 FA3: differs from ours by 30 %"]


def test_time_runs_out() -> None:
    assert in_seconds(None)() and in_seconds(60)() and not in_seconds(0)()
