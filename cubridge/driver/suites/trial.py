"""One trial of a suite: a method on a variant at a length; whatever it does is an outcome."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cubridge.driver.sandbox.process import Limits, Sandbox
from cubridge.driver.suites.results import Outcome
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import replace_file
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.findings import Verdict
from cubridge.judge.plan import value_cases
from cubridge.judge.runners import ValueRunner

if TYPE_CHECKING:
    from cubridge.driver.model.use import ModelUse
    from cubridge.driver.suites.suite import Suite, Trial

FAULT: Final = "fault.txt"
"""In the folder of a trial that a fault of ours ended: where in the program."""


def run_trial(suite: Suite, trial: Trial, folder: Path, sandbox: Sandbox) -> Outcome:
    """What came of it; a failure of any kind is an outcome."""
    folder.mkdir(parents=True, exist_ok=True)
    use: ModelUse | None = None
    verdict, reason, broken, speed = "", "", False, None
    try:
        use = suite.model_of(trial).use(folder / "transcript.jsonl", folder / "replies", sandbox)
        reached = _adapted(suite, trial, use, folder)
        verdict, reason = str(reached), "" if _counts(reached, suite.level) else f"checked as {reached} alone"
        speed = _speed(suite, trial, folder) if not reason and suite.level is not Verdict.INTERPRETED else None
    except CuError as error:
        reason, broken = _reason(error), error.exit_code == 5 or error.diagnostics[0].code in _PROVIDER_FAILED
    except Exception as error:  # a fault of ours must not stop the other trials
        replace_file(folder / FAULT, traceback.format_exc().encode())
        reason = f"a fault of cuirc itself: {type(error).__name__}"
    return Outcome(*trial.key, not reason, verdict, reason, broken, speed, *_spent(use))


_PROVIDER_FAILED: Final = frozenset(("CU701", "CU702", "CU704"))
"""No fault of the method: such a trial is run again when the run goes on."""
_LEVELS: Final = (Verdict.INTERPRETED, Verdict.EMULATED, Verdict.COMPILED, Verdict.GPU)


def _counts(reached: Verdict, level: Verdict) -> bool:
    return _LEVELS.index(reached) >= _LEVELS.index(level)


def _adapted(suite: Suite, trial: Trial, use: ModelUse | None, folder: Path) -> Verdict:
    """How far the adapted kernel was checked. Errors: CU844 where a check fails; as `adapt`."""
    from cubridge.driver.adapt import adapt, adapt_unchecked

    sizes = suite.sizes(trial)
    reference, function = trial.variant.reference, trial.variant.function
    if suite.level is not Verdict.INTERPRETED:
        adaptation = adapt(reference, suite.kernel, sizes, suite.dtype, function=function, model=use)
        adaptation.write(folder)
        if not adaptation.report.accepted:
            raise CuError(Diagnostic("CU844", "a check fails: see report.md"), exit_code=3)
        return adaptation.report.verdict
    adapted = adapt_unchecked(reference, suite.kernel, sizes, suite.dtype, function=function, model=use)
    if use is not None:
        return Verdict.INTERPRETED  # it was run so before it was accepted
    checker = Checker(adapted.reference.attention, suite.dtype, approximations(adapted.target))
    results = checker.run(ValueRunner(adapted.target), value_cases(adapted.reference.attention.spec, sizes))
    wrong = next((r for r in results if not r.accepted), None)
    if wrong is not None:
        raise CuError(Diagnostic("CU844", f"{wrong.stage} at {wrong.shape}: {wrong.detail}"), exit_code=3)
    return Verdict.INTERPRETED


def _reason(error: CuError) -> str:
    """The codes; those of the last answer where a budget ended."""
    codes = [d.code for d in error.diagnostics]
    return " ".join(dict.fromkeys(codes))


def _spent(use: ModelUse | None) -> tuple[int, int, float | None]:
    """Replies, tokens and US dollars."""
    replies = [e for e in _events(use) if e["event"] == "reply"]
    tokens = [e["tokens"] for e in replies]
    costs = [e["cost_usd"] for e in replies]
    known = [c for c in costs if isinstance(c, float)]
    spent = sum(int(t["input"]) + int(t["output"]) for t in tokens if isinstance(t, dict))
    return len(replies), spent, sum(known) if known else None


def _events(use: ModelUse | None) -> Iterator[dict[str, object]]:
    yield from () if use is None else use.transcript.events


def _speed(suite: Suite, trial: Trial, folder: Path) -> float | None:
    """TFLOP/s over visible elements, measured in a child process; None without a GPU. Errors: what the measurement says."""
    from cubridge.backend.gpu.device import find_gpu
    from cubridge.driver.suites.bench import time_folder

    try:
        find_gpu()
    except CuError:
        return None
    with Sandbox(Limits(bytes=None)) as sandbox:
        return sandbox.run(time_folder, folder, suite.sizes(trial))
