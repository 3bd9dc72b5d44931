"""What a report says of errors, however large."""

from __future__ import annotations

from pathlib import Path

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.report import summary, to_markdown
from cubridge.judge.findings import CaseResult, Findings, Verdict

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_errors_are_short() -> None:
    runs = tuple(CaseResult("value engine", "1,1,1,1,1,64", "random", worst, False) for worst in (0.4519, 3.4061e37))
    report = adapt_unchecked(EXAMPLES / "full.py", "sm80").report(Findings(runs, (), (), Verdict.REJECTED, ()))
    assert "0 of 2 runs within the bound, worst error 3.41e+37 of it" in summary(report)
    assert "| random | 0.452 |" in to_markdown(report) and "| random | 3.41e+37 |" in to_markdown(report)
