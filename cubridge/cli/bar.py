"""What is being done, how far it is and how long is left: one line of a terminal, and nothing where there is none."""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from cubridge.driver.stopwatch import Step

_WIDTH: Final = 24
_PAUSE: Final = 0.1
"""Seconds between two looks of one stage."""
_CLEAR: Final = "\r\x1b[2K"


@dataclass(slots=True)
class Bar:
    """A line of `stream`, which is cleared and written again. Called with each step; `say` prints a message above it."""

    stream: TextIO
    columns: int
    is_shown: bool = True
    speaks: bool = True
    clock: Callable[[], float] = monotonic
    _stage: str = ""
    _begun: float = 0.0
    _written: float = 0.0

    def __call__(self, step: Step) -> None:
        if not self.is_shown:
            return
        now = self.clock()
        is_new = step.what != self._stage
        if is_new:
            self._stage, self._begun = step.what, now
        if is_new or step.done == step.total or now - self._written >= _PAUSE:
            self._written = now
            self._write(f"{_CLEAR}{line(step, now - self._begun)[: self.columns - 1]}")

    def say(self, message: str) -> None:
        self.clear()
        if self.speaks:
            self._write(f"{message}\n")

    def clear(self) -> None:
        if self.is_shown and self._stage:
            self._stage = ""
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def line(step: Step, seconds: float) -> str:
    """`seconds`: since the stage began. What is left is taken to go on as what is done went."""
    if not step.total:
        return f"{step.what} .."
    done = min(step.done, step.total)
    full = _WIDTH * done // step.total
    left = f"  {_time(seconds / done * (step.total - done))} left" if 0 < done < step.total else ""
    detail = f"  {step.detail}" if step.detail else ""
    return f"{step.what} {'█' * full}{'░' * (_WIDTH - full)} {done}/{step.total}{left}{detail}"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def progress_bar(options: Namespace) -> Generator[Bar]:
    """On stderr, gone at the end; silent where stderr is no terminal, and without messages where it is one JSON text."""
    is_text = options.diagnostics == "text"
    is_shown = is_text and sys.stderr.isatty()
    bar = Bar(sys.stderr, shutil.get_terminal_size().columns if is_shown else 0, is_shown, is_text)
    try:
        yield bar
    finally:
        bar.clear()
