"""How far long work is, and the seconds of the stages of an adaptation, for timings.json."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Step:
    """What is being done: `done` of `total` parts, of which `detail` was the last; total 0 where there are no parts."""

    what: str
    done: int = 0
    total: int = 0
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.done} of {self.total}" if self.total else f"{self.what} .."


Progress = Callable[[Step], None]


def silent(_: Step) -> None:
    pass


def counted(progress: Progress, what: str, total: int) -> Callable[[str], None]:
    """A function that is told of each part of `what` when it is done."""
    parts = count(1)
    return lambda detail: progress(Step(what, next(parts), total, detail))


@dataclass(slots=True)
class Stopwatch:
    """Seconds of each stage, in order. `progress` is told when one begins."""

    progress: Progress = silent
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        self.progress(Step(name))
        self.seconds[name] = 0.0
        with self.part(name):
            yield

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """Of a stage, perhaps beside others; each time is added."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + perf_counter() - start, 3)
