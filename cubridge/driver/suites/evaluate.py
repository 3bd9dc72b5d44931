"""Runs a suite: every method on every variant, at every length, sample by sample. Each outcome is kept as soon as it is known, so
that a run that breaks off goes on; whatever a trial does, the run goes on too."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cubridge.driver.sandbox.process import Limits, Sandbox
from cubridge.driver.stopwatch import Progress, Step, silent
from cubridge.driver.suites.results import Outcome, Results, make_results
from cubridge.engine.threads import one_thread
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import replace_file, replace_files
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.findings import Verdict
from cubridge.judge.plan import value_cases
from cubridge.judge.runners import ValueRunner

if TYPE_CHECKING:
    from cubridge.driver.model.use import ModelUse
    from cubridge.driver.suites.suite import Suite, Trial

STATE: Final = "state.jsonl"
FAULT: Final = "fault.txt"
"""In the folder of a trial that a fault of ours ended: where in the program."""


def evaluate(suite: Suite, folder: Path, progress: Progress = silent) -> Results:
    """Run what is left of a suite and write results.json and table.md into the folder. `progress` hears of each trial that begins.
    Errors: OSError; CU720 for a folder that has the state of another suite."""
    state = State(folder / STATE, suite.digest)
    known = state.read()
    with Sandbox() as sandbox, one_thread():
        left = [t for t in suite.trials() if t.key not in known or known[t.key].broken]
        for done, trial in enumerate(left):
            progress(Step("evaluate", done, len(left), " ".join(str(part) for part in trial.key)))
            known[trial.key] = outcome = run_trial(suite, trial, folder / trial.folder, sandbox)
            state.add(outcome)
    results = make_results(suite, [known[trial.key] for trial in suite.trials()])
    data = json.dumps(results.to_json(), indent=1) + "\n"
    replace_files(folder, {"results.json": data.encode(), "table.md": results.to_text().encode()})
    return results


# ---- state -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """The outcomes until now, one JSON line each, after a line that names the suite."""

    path: Path
    digest: str

    def read(self) -> dict[tuple[str, str, int, int], Outcome]:
        """A last line that was being written when the run broke off is dropped. Errors: CU720."""
        lines = self.path.read_text(encoding="utf-8").split("\n") if self.path.exists() else [""]
        complete = [line for line in lines[:-1] if line]
        if not complete:
            self._write([json.dumps({"suite": self.digest})])
            return {}
        if len(complete) < len(lines) - 1 or lines[-1]:
            self._write(complete)
        try:
            head, *entries = (json.loads(line) for line in complete)
            if head != {"suite": self.digest}:
                message = f"{self.path} is the state of another suite, or of this one before it was changed"
                raise CuError(Diagnostic("CU720", message, help="give another folder with -o"))
            outcomes = [Outcome(**entry) for entry in entries]
        except (ValueError, TypeError) as error:
            raise CuError(Diagnostic("CU720", f"{self.path} is no state of an evaluation")) from error
        return {o.key: o for o in outcomes}

    def add(self, outcome: Outcome) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(outcome)) + "\n")

    def _write(self, lines: list[str]) -> None:
        replace_file(self.path, "".join(f"{line}\n" for line in lines).encode())


# ---- trials ----------------------------------------------------------------------------------------------------------


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
