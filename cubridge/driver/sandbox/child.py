"""The loop of a child process: reads jobs from its standard input, runs them, writes what came of them to its standard output."""

from __future__ import annotations

import os
import pickle
import resource
import sys
from collections.abc import Callable, Mapping
from typing import BinaryIO

from cubridge.driver.sandbox.process import HEADER, Job, Outcome, name_of
from cubridge.ir.diagnostics import CuError, Diagnostic


def serve(*functions: Callable[..., object]) -> None:
    """Do what is asked, of these functions alone, until the input ends."""
    table = {name_of(function): function for function in functions}
    limit = int(sys.argv[1])
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what a library prints is no answer
        while (job := _read(sys.stdin.buffer)) is not None:
            data = pickle.dumps(_outcome(table, job))
            out.write(HEADER.pack(len(data)) + data)
            out.flush()


def _read(stream: BinaryIO) -> Job | None:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    return pickle.loads(stream.read(HEADER.unpack(header)[0]))


def _outcome(table: Mapping[str, Callable[..., object]], job: Job) -> Outcome:
    """Whatever a job raises is told: hostile text may find a fault of the judge, and is then refused like any other."""
    if job.name not in table:
        return Outcome(unknown=job.name)
    try:
        return Outcome(table[job.name](*job.args, **job.kwargs))
    except CuError as error:
        return Outcome(None, error.diagnostics or (_failed(error),), error.exit_code)
    except MemoryError:
        message = "it takes too much to judge: its process is out of memory"
        return Outcome(None, (Diagnostic("CU721", message),))
    except Exception as error:
        return Outcome(None, (_failed(error),))


def _failed(error: Exception) -> Diagnostic:
    said = " ".join(str(error).split())[:300]
    if "allocate memory" in said:
        return Diagnostic("CU721", "it takes too much to judge: its process is out of memory")
    return Diagnostic("CU722", f"it cannot be judged: {type(error).__name__}: {said}")
