"""Trials of a suite over the machines of a Ray cluster, a task each. All have this package and see the same files; what a worker
or a machine that dies was at runs again on another, up to three times."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge.driver.stopwatch import Progress, Step
from cubridge.driver.suites.results import Outcome
from cubridge.driver.suites.spread import MOST_DEATHS, given_up, name_of, run_alone
from cubridge.ir.diagnostics import CuError, Diagnostic

if TYPE_CHECKING:
    from cubridge.driver.suites.suite import Suite, Trial


@dataclass(frozen=True, slots=True)
class Cluster:
    """`address`: as Ray has it, "auto" for the cluster that this machine is in, "local" for one of its own. A connection to Ray
    that is open already is used."""

    address: str

    def __call__(self, suite: Suite, trials: Sequence[Trial], folder: Path, progress: Progress) -> Iterator[Outcome]:
        """Errors: CU726, exit code 5, without Ray."""
        ray = _connected(self.address)
        died = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError)
        run = ray.remote(_run_there).options(max_retries=MOST_DEATHS - 1)
        running = [run.remote(suite, trial, folder, Path.cwd()) for trial in trials]
        try:
            futures = {reference.future(): trial for reference, trial in zip(running, trials, strict=True)}
            with redirect_stdout(sys.stderr):  # where Ray says which workers died
                for done, future in enumerate(as_completed(futures), 1):
                    trial = futures[future]
                    progress(Step("evaluate", done, len(trials), name_of(trial)))
                    yield given_up(trial) if isinstance(future.exception(), died) else future.result()
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _run_there(suite: Suite, trial: Trial, folder: Path, where: Path) -> Outcome:
    """Paths of a suite and of `folder` may be relative, to `where`."""
    os.chdir(where)
    return run_alone(suite, trial, folder)


def _connected(address: str) -> Any:
    """Ray, which need not be installed."""
    try:
        ray: Any = import_module("ray")
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ImportError, ConnectionError, RuntimeError, ValueError) as error:
        help_ = "pip install 'cubridge[ray]', and `ray start` on each machine; --ray local needs none"
        raise CuError(Diagnostic("CU726", f"no Ray cluster: {error}", help=help_), exit_code=5) from error
    return ray
