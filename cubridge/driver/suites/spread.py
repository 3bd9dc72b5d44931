"""Trials of a suite one by one, or over processes of this machine. A worker that dies takes one trial with it, which is run again;
a trial that kills every worker is an outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from cubridge.driver.sandbox.process import Sandbox
from cubridge.driver.stopwatch import Progress, Step
from cubridge.driver.suites.results import Outcome
from cubridge.driver.suites.trial import run_trial
from cubridge.engine.threads import one_thread

if TYPE_CHECKING:
    from cubridge.driver.suites.suite import Suite, Trial

Spread = Callable[["Suite", Sequence["Trial"], Path, Progress], Iterator[Outcome]]
"""Runs trials, whose files go below a folder, and gives each outcome when it is known."""
MOST_DEATHS: Final = 3
"""Workers that a trial may take with it before it is given up."""


def one_by_one(suite: Suite, trials: Sequence[Trial], folder: Path, progress: Progress) -> Iterator[Outcome]:
    """In this process, with one child process for all."""
    with Sandbox() as sandbox, one_thread():
        for done, trial in enumerate(trials):
            progress(Step("evaluate", done, len(trials), name_of(trial)))
            yield run_trial(suite, trial, folder / trial.folder, sandbox)


def spread_of(jobs: int) -> Spread:
    return one_by_one if jobs == 1 else Processes(jobs)


def run_alone(suite: Suite, trial: Trial, folder: Path) -> Outcome:
    """In a worker. `folder`: of the whole suite."""
    with Sandbox() as sandbox, one_thread():
        return run_trial(suite, trial, folder / trial.folder, sandbox)


def name_of(trial: Trial) -> str:
    return " ".join(str(part) for part in trial.key)


def given_up(trial: Trial) -> Outcome:
    """It is run again when the run goes on."""
    return Outcome(*trial.key, False, "", f"{MOST_DEATHS} workers died", True, None, 0, 0, None)


# ---- processes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Processes:
    """`jobs` at a time."""

    jobs: int

    def __call__(self, suite: Suite, trials: Sequence[Trial], folder: Path, progress: Progress) -> Iterator[Outcome]:
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(self.jobs):
            idle.put(_Worker())

        def run(trial: Trial) -> Outcome:
            worker = idle.get()
            try:
                return worker.run(suite, trial, folder)
            finally:
                idle.put(worker)

        with ThreadPoolExecutor(self.jobs) as threads:
            try:
                futures = {threads.submit(run, trial): trial for trial in trials}
                for done, future in enumerate(as_completed(futures), 1):
                    progress(Step("evaluate", done, len(trials), name_of(futures[future])))
                    yield future.result()
            finally:
                threads.shutdown(cancel_futures=True)
                for _ in range(self.jobs):
                    idle.get().pool.shutdown()


@dataclass(slots=True)
class _Worker:
    """One process, and a new one after its death."""

    pool: ProcessPoolExecutor = field(default_factory=lambda: ProcessPoolExecutor(1, get_context("spawn")))

    def run(self, suite: Suite, trial: Trial, folder: Path) -> Outcome:
        for _ in range(MOST_DEATHS):
            try:
                return self.pool.submit(run_alone, suite, trial, folder).result()
            except BrokenProcessPool:
                self.pool = ProcessPoolExecutor(1, get_context("spawn"))
        return given_up(trial)
