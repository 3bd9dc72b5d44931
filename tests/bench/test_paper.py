"""The table of the paper: a grid in parts, runs that go on, texts and plots; on the CPU, with a clock that does not run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench import cells, speed
from bench.backward_speed import Timed
from bench.build import Built, Task
from bench.kept import Cell, Setup
from bench.lengths import LAYOUTS
from bench.paper import main
from bench.paper_grid import EIGHT, LENGTHS, grid, part_of
from bench.paper_plot import figure
from bench.paper_tables import as_data, faults_by_kind, ours_ran, paper_text, speedups
from bench.row import Row
from bench.variants import VARIANTS
from cubridge.backend.gpu.timing import Timing
from cubridge.backend.ptx.device import PtxDevice
from cubridge.ir.spec import Shape
from tests.bench.test_speed import fake_clock

SMALL = [
    "--lengths", "128", "256", "--heads", "2/1", "--head-dim", "64", "--peers", "eager", "--rounds", "1", "--warm", "0",
]  # fmt: skip
SETUP = Setup(("eager", "flex"), "a card, torch 2")


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers alone, timed on the CPU."""

    def build(wanted: Sequence[tuple[str, Shape]], arch: str, workers: int | None) -> list[Built]:
        return [Built(Task(name, "bf16", shape.D, shape)) for name, shape in wanted]

    def build_timed(wanted: Sequence[tuple[str, Shape]], arch: str, workers: int | None) -> list[Timed]:
        return [Timed(*one, fault="CuError: no") for one in wanted]

    monkeypatch.setattr(cells, "build_long", build)
    monkeypatch.setattr(cells, "build_timed", build_timed)
    monkeypatch.setattr("cubridge.backend.gpu.device.find_gpu", PtxDevice)
    monkeypatch.setattr(speed, "Measure", partial(speed.Measure, clock=fake_clock))


def test_the_grid_and_its_parts() -> None:
    whole = grid(("forward", "backward"), EIGHT, LENGTHS, LAYOUTS, 128)
    assert len(whole) == len(set(map(str, whole))) == 2 * 8 * 3 * 5 and set(EIGHT) <= VARIANTS.keys()
    assert [c for k in range(1, 8) for c in part_of(whole, (k, 7))] == whole
    assert {c.shape.B * c.shape.Lq for c in whole} == {16384}


@pytest.mark.usefixtures("unbuilt")
def test_a_run_goes_on_and_parts_make_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [*SMALL, "--variants", "relu"]
    first = [*wanted, "--part", "1/2", "--out", str(tmp_path / "first")]
    assert main([*first, "--seconds", "0"]) == 3  # nothing was measured
    assert main(first) == main(first) == 3  # ours is missing
    assert "0 cells to measure" in capsys.readouterr().out
    second = tmp_path / "second"
    assert main([*wanted, "--part", "2/2", "--out", str(second)]) == 3
    both = [str(tmp_path / name / "cells.jsonl") for name in ("first", "second")]
    assert main([*wanted, "--of", *both, "--out", str(second)]) == 3
    assert capsys.readouterr().out.endswith("0 cells left\n")
    data = json.loads((second / "paper.json").read_text())
    assert [(c["direction"], c["shape"]["Lq"]) for c in data["cells"]] == [
        ("forward", 128), ("forward", 256), ("backward", 128), ("backward", 256),
    ]  # fmt: skip
    assert (second / "paper.md").read_text().splitlines()[-3:] == [
        "- sm80, RuntimeError: 2 of 4 cells, first forward relu 128,2,1,128,128,64 normal: RuntimeError: not built",
        "- sm90a, RuntimeError: 2 of 4 cells, first forward relu 128,2,1,128,128,64 normal: RuntimeError: not built",
        "- all, RuntimeError: 2 of 4 cells, first backward relu 128,2,1,128,128,64 normal: RuntimeError: CuError: no",
    ]
    assert {p.name for p in second.iterdir()} == {
        "cells.jsonl", "paper.md", "paper.json", "forward.svg", "backward.svg",
    }  # fmt: skip


def test_files_that_make_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_text("")
    for wrong in (["--of", str(tmp_path / "missing")], ["--of", str(tmp_path / "empty")], ["--part", "3/2"]):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 2 and "error: " in capsys.readouterr().err


def row(ours: float, **peers: float) -> Row:
    times = {"sm80": 2.0, "sm90a": ours, **peers}
    return Row("relu", "", 1e12, {n: Timing(t) for n, t in times.items()})


MEASURED = [
    (Cell("forward", name, Shape(1, 2, 1, length, length, 64)), found)
    for name, length, found in (
        ("relu", 1024, row(1.0, eager=2.0, Flex=4.0)),
        ("relu", 2048, row(1.0, eager=8.0)),
        ("comb", 1024, row(2.0, eager=9.0, Flex=1.0)),
        ("comb", 1000, row(4.0)),
    )
]


def test_speeds_stand_beside_those_of_the_fastest_peer() -> None:
    header, _, *lines = (line.split("|")[1:-1] for line in speedups(MEASURED).splitlines())
    assert [[c.strip() for c in line] for line in (header, *lines)] == [
        ["variant", "1000", "1k", "2k"],
        ["relu", "", "1000 (2.00x)", "1000 (8.00x)"],
        ["comb", "250", "500 (0.50x)", ""],
        ["geometric mean", "", "1.00x", "8.00x"],
    ]
    text = paper_text(SETUP, MEASURED)
    assert text.startswith("a card, torch 2; bf16.") and "## Forward, 2/1 heads\n" in text and "Missing" not in text
    assert as_data(SETUP, MEASURED)["cells"][0]["times_of_best_peer"] == 2.0


def test_faults_are_told_once_a_kind() -> None:
    cell = MEASURED[0][0]
    ours = {"sm80": Timing(1.0), "sm90a": Timing(1.0)}
    rows = [
        (cell, Row("relu", "", 1.0, {"eager": Timing(fault=f"OutOfMemoryError: {n} GiB"), **ours}, {"Flex": n / 20}))
        for n in (9, 8)
    ]
    assert [fault.partition(",1024")[0] for fault in faults_by_kind(rows)] == [
        "eager, OutOfMemoryError: 2 of 2 cells, first forward relu 1,2,1",
        "Flex, differs from ours: 2 of 2 cells, first forward relu 1,2,1",
    ]
    assert ours_ran(rows)
    assert not ours_ran([(cell, Row("relu", "", 1.0, {"sm90a": Timing(1.0), "sm80": Timing(fault="no")}))])
    assert ours_ran([(Cell("backward", "relu", cell.shape), Row("relu", "", 1.0, {"sm90a": Timing(1.0)}))])


def test_a_plot_for_each_variant_and_layout() -> None:
    made = figure(MEASURED)
    assert [axes.get_title() for axes in made.axes] == ["relu", "comb"]
    lines = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in made.axes[0].lines}
    assert lines["sm90a"] == [1000.0, 1000.0] and lines["eager"] == [500.0, 125.0]
    assert [text.get_text() for text in made.legends[0].get_texts()] == ["eager", "Flex", "sm80", "sm90a"]
