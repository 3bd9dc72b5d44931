"""A child process for what did not come with the package, a user's text or a model's: judged, compiled and run there, within limits
of time and memory.

The child is Python of our own; what it runs of theirs is CuIR in the engines, or CUDA text in a compiler, in the emulator's
program or on a GPU. It and all that it started is killed when its time is over, and a new one is started for the next job."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Final, ParamSpec, Protocol, TypeVar, cast

from cubridge.ir.diagnostics import CuError, Diagnostic, InternalError

P = ParamSpec("P")
R = TypeVar("R")

CHILD: Final = "cubridge.driver.sandbox.jobs"
"""The module that a child process runs."""
HEADER: Final = struct.Struct("<Q")
_CHUNK: Final = 1 << 20


class RunsJobs(Protocol):
    """Who runs jobs: a child process, or this one. A job is a function of `jobs.JOBS` with its arguments."""

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """For what was accepted before, or was never a model's."""

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Job:
    """What a child process reads: the name of a function, which it looks up in its table, and arguments."""

    name: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]


def name_of(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@dataclass(frozen=True, slots=True)
class Limits:
    """For one job: seconds by the clock, and bytes of address space of the child and of each of its processes; `bytes` None
    for the GPU's driver, which reserves more than there is."""

    seconds: float = 300.0
    bytes: int | None = 12 << 30


LARGE_HEADERS: Final = Limits(seconds=1800.0)
"""For texts over headers of which a compile takes a minute, alone on the machine."""


@dataclass(slots=True)
class Sandbox:
    """Runs jobs one after the other. Use as a context: its end kills the child. `program`: the module that the child runs."""

    limits: Limits = field(default_factory=Limits)
    program: str = CHILD
    _child: subprocess.Popen[bytes] | None = None
    _lock: Lock = field(default_factory=Lock)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function gives. Errors: what it raises as CuError; CU721 beyond the limits; CU722 where it fails otherwise;
        InternalError for one that is not in the table of the child."""
        with self._lock:
            return cast("R", self._run(Job(name_of(function), args, kwargs)))

    def _run(self, job: Job) -> object:
        child = self._started()
        end = time.monotonic() + self.limits.seconds
        try:
            _send(child, pickle.dumps(job), end)
            outcome = pickle.loads(_receive(child, end))
        except TimeoutError:
            self.close()
            raise _over(f"it does not end within {self.limits.seconds:g} s") from None
        except (EOFError, BrokenPipeError):
            self.close()
            raise _over(f"its process was killed ({_how(child)})") from None
        except BaseException:
            self.close()
            raise
        return outcome.value()

    def close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = subprocess.Popen(
                [sys.executable, "-m", self.program, str(self.limits.bytes or 0)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True, bufsize=0,
            )  # fmt: skip
        return self._child


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the child sends back: a result, or diagnostics with an exit code. `unknown`: the name of a job that is in no table."""

    result: object = None
    diagnostics: tuple[Diagnostic, ...] = ()
    exit_code: int = 1
    unknown: str | None = None

    def value(self) -> object:
        if self.unknown is not None:
            raise InternalError(f"`{self.unknown}` is no job of a child process")
        if self.diagnostics:
            raise CuError(*self.diagnostics, exit_code=self.exit_code)
        return self.result


def _over(how: str) -> CuError:
    return CuError(Diagnostic("CU721", f"it takes too much to judge: {how}"))


def _how(child: subprocess.Popen[bytes]) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = child.wait(5)
        return signal.Signals(-status).name if status < 0 else f"status {status}"
    return "its output is closed"


def _send(child: subprocess.Popen[bytes], data: bytes, end: float) -> None:
    assert child.stdin is not None
    message = memoryview(HEADER.pack(len(data)) + data)
    descriptor = child.stdin.fileno()
    os.set_blocking(descriptor, False)
    while message:
        _await(end, descriptor, select.POLLOUT)
        message = message[os.write(descriptor, message[:_CHUNK]) :]


def _receive(child: subprocess.Popen[bytes], end: float) -> bytes:
    assert child.stdout is not None
    parts = _bytes(child.stdout.fileno(), end)
    header = b""
    while len(header) < HEADER.size:
        header += next(parts)
    [size] = HEADER.unpack(header[: HEADER.size])
    data = bytearray(header[HEADER.size :])
    while len(data) < size:
        data += next(parts)
    return bytes(data)


def _bytes(descriptor: int, end: float) -> Iterator[bytes]:
    while True:
        _await(end, descriptor, select.POLLIN)
        part = os.read(descriptor, _CHUNK)
        if not part:
            raise EOFError
        yield part


def _await(end: float, descriptor: int, event: int) -> None:
    """Until a pipe can be read or written, or has ended. Errors: TimeoutError."""
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(1000.0 * max(0.0, end - time.monotonic())):
        raise TimeoutError
