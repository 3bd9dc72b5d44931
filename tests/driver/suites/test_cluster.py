"""Trials over a cluster of Ray with two workers on this machine, one of which is killed; and without Ray."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cubridge.cli import main
from cubridge.driver.suites.cluster import Cluster
from cubridge.driver.suites.evaluate import evaluate
from cubridge.driver.suites.spread import MOST_DEATHS
from tests.driver.suites.test_spread import suite_of


@pytest.fixture(scope="module")
def two_workers() -> Iterator[None]:
    ray: Any = pytest.importorskip("ray", reason="`make slow` installs ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
@pytest.mark.parametrize("deaths, samples, accepted, reasons", [(1, 2, 2, ()), (100, 1, 0, ("3 workers died",))])
def test_a_worker_that_is_killed_costs_no_other_trial(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    deaths: int,
    samples: int,
    accepted: int,
    reasons: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    results = evaluate(suite_of(tmp_path, deaths, samples), Path("out"), spread=Cluster("auto"))
    assert [(p.method, p.accepted, p.reasons) for p in results.problems] == [
        ("rules", 1, ()), ("model", accepted, reasons),
    ]  # fmt: skip
    assert len(list(tmp_path.glob("death.*"))) == min(deaths, MOST_DEATHS)
    assert (tmp_path / "out" / "state.jsonl").exists() and capsys.readouterr().out == ""


def test_a_suite_without_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    suite_of(tmp_path, 0)
    assert main(["evaluate", str(tmp_path / "suite.toml"), "-o", str(tmp_path / "out"), "--ray", "auto"]) == 5
    said = capsys.readouterr().err
    assert "error[CU726]: no Ray cluster: " in said and "pip install 'cubridge[ray]'" in said
