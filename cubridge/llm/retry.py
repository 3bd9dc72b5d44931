"""Retries with exponential backoff, for failures that may pass: rate limits, overload, server errors, lost connections."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class Transient(Exception):
    """A failure that may pass. `retry_after`: seconds that the server asks for, if it does."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits of `first`, 2 `first`, 4 `first`, .. seconds at most `longest`, with jitter; `attempts` calls in all."""

    attempts: int = 5
    first: float = 1.0
    longest: float = 60.0

    def run(self, call: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
        """Errors: the last `Transient` once the attempts are used up; anything else at once."""
        for attempt in range(self.attempts - 1):
            try:
                return call()
            except Transient as failure:
                sleep(self._wait(attempt) if failure.retry_after is None else failure.retry_after)
        return call()

    def _wait(self, attempt: int) -> float:
        return min(self.longest, self.first * 2**attempt) * random.uniform(0.5, 1.0)


TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})

_LONGEST_ASKED = 120.0


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait, within reason; None where it names none, or a date."""
    try:
        return min(_LONGEST_ASKED, max(0.0, float(headers.get("retry-after", ""))))
    except ValueError:
        return None
