"""The backward pass of an adaptation: its files, its report, and kernels that have none."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.driver.adapted import Adapted
from cubridge.driver.backward import NAMES, Backward, adapt_backward
from cubridge.driver.outputs import FILES
from cubridge.driver.report import BackwardReport, summary, to_markdown
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse
from cubridge.judge.findings import Findings, MutantResult, Verdict

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def adapted(kernel: str = "sm90a") -> Adapted:
    return adapt_unchecked(EXAMPLES / "alibi.py", kernel)


@cache
def backward() -> Backward:
    return adapt_backward(adapted())


def adaptation(report: BackwardReport) -> Adaptation:
    findings = Findings((), (MutantResult("mask", "value engine"),), (), Verdict.COMPILED, ())
    whole = replace(adapted().report(findings), backward=report)
    return Adaptation(adapted(), whole, {}, backward())


def test_files_say_what_was_checked() -> None:
    files = backward().files()
    assert {*files} == {f"{n}.{kind}" for n in NAMES for kind in ("cu", "cuir")} | {"backward.patch"}
    assert {*files} < {*FILES}
    assert [parse(files[f"{n}.cuir"].decode()) for n in NAMES] == [*backward().lowered.targets]
    assert files["backward.patch"].startswith(b"--- a/backward.cu\n+++ b/backward.cu\n")
    assert b"+++ b/backward_dq.cu" not in files["backward.patch"]
    assert {*adaptation(backward().report).files()} >= {*files}


def test_the_report_has_runs_and_wrong_passes() -> None:
    report = backward().report
    assert report.accepted
    assert [c.stage for c in report.cases] == ["value engine", "value engine", "emulator"]
    assert len(report.mutants) >= 8
    assert report.changed["backward"].regions == ("params", "tile_state", "tile_setup", "query_range", "score", "mask")
    whole = adaptation(report).report
    assert whole.accepted
    assert json.loads(json.dumps(whole.to_json()))["backward"]["cases"][2]["accepted"]
    assert "## Backward" in to_markdown(whole)
    assert "wrong passes rejected" in summary(whole)


def test_a_wrong_pass_that_nobody_rejects_fails_all() -> None:
    wrong = replace(backward().report, mutants=(MutantResult("delta missing", None),))
    made = adaptation(wrong)
    assert not made.report.accepted
    assert {*made.files()} == {"report.json", "report.md", "timings.json", "view.json"}


def test_a_kernel_without_a_backward_pass() -> None:
    with pytest.raises(CuError) as error:
        adapt_backward(adapted("sm80"))
    assert error.value.diagnostics[0].code == "CU534"
