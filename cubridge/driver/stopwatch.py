"""Seconds of the stages of an adaptation, for timings.json."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

Progress = Callable[[str], None]


def silent(_: str) -> None:
    pass


@dataclass(slots=True)
class Stopwatch:
    """Seconds of each stage, in order. `progress` is told when one begins."""

    progress: Progress = silent
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        self.progress(f"{name} ..")
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
