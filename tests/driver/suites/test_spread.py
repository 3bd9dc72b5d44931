"""Trials over processes: the outcomes of one process, also where a worker is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cubridge.driver.suites.evaluate import evaluate
from cubridge.driver.suites.spread import Processes, Spread, one_by_one, spread_of
from cubridge.driver.suites.suite import Suite, read_suite
from tests.driver.model.talk import EXAMPLES, pipeline_reply

KILLS = """\
import os, signal, sys, time
from pathlib import Path

sys.stdin.read()
folder = Path(__file__).parent
deaths = len(list(folder.glob("death.*")))
if deaths < {deaths}:
    (folder / f"death.{{deaths}}").touch()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(5)
print((folder / "reply.md").read_text())
"""
"""A program that kills the worker which asks it, some times; then it answers."""


def suite_of(folder: Path, deaths: int, samples: int = 2) -> Suite:
    (folder / "reply.md").write_text(pipeline_reply("prefix_lm"))
    (folder / "kills.py").write_text(KILLS.format(deaths=deaths))
    proposers = {"rules": "rules", "model": f"command:{sys.executable} {folder / 'kills.py'}"}
    methods = "".join(
        f'[[method]]\nname = "{n}"\nproposer = "{p}"\nsamples = {samples}\n' for n, p in proposers.items()
    )
    variant = f'[[variant]]\nname = "prefix_lm"\nreference = "{EXAMPLES / "prefix_lm.py"}"\n'
    (folder / "suite.toml").write_text(f'level = "interpreted"\nlengths = [150]\nheads = [2, 1]\n{methods}{variant}')
    return read_suite(folder / "suite.toml")


def table(suite: Suite, folder: Path, spread: Spread) -> bytes:
    folder.mkdir()
    evaluate(suite, folder, lambda _: None, spread)
    assert (folder / "trials" / "model" / "prefix_lm" / "150" / "2" / "transcript.jsonl").exists()
    return (folder / "table.md").read_bytes()


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    right = table(suite_of(tmp_path, 0), tmp_path / "here", one_by_one)
    assert b"| model | prefix_lm | 150 | 2/2 |" in right
    assert table(suite_of(tmp_path, 1), tmp_path / "processes", Processes(2)) == right
    assert len(list(tmp_path.glob("death.*"))) == 1


@pytest.mark.slow
def test_a_trial_that_kills_every_worker_is_an_outcome(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    results = evaluate(suite_of(tmp_path, 100), tmp_path / "out", lambda _: None, Processes(2))
    assert [(p.method, p.accepted, p.broken, p.reasons) for p in results.problems] == [
        ("rules", 1, 0, ()), ("model", 0, 2, ("3 workers died",)),
    ]  # fmt: skip


def test_one_job_needs_no_process() -> None:
    assert spread_of(1) is one_by_one and spread_of(3) == Processes(3)
