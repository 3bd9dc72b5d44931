"""Runs a suite: every method on every variant, at every length, sample by sample. Each outcome is kept as soon as it is known, so
that a run that breaks off goes on; whatever a trial does, the run goes on too."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cubridge.driver.stopwatch import Progress, silent
from cubridge.driver.suites.results import Outcome, Results, make_results
from cubridge.driver.suites.spread import Spread, one_by_one
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import replace_file, replace_files

if TYPE_CHECKING:
    from cubridge.driver.suites.suite import Suite

STATE: Final = "state.jsonl"


def evaluate(suite: Suite, folder: Path, progress: Progress = silent, spread: Spread = one_by_one) -> Results:
    """Run what is left of a suite and write results.json and table.md into the folder. `progress` hears of trials; `spread`: where
    they run. Errors: OSError; CU720 for a folder that has the state of another suite."""
    state = State(folder / STATE, suite.digest)
    known = state.read()
    left = [trial for trial in suite.trials() if trial.key not in known or known[trial.key].broken]
    for outcome in spread(suite, left, folder, progress):
        known[outcome.key] = outcome
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
