"""A limit on the whole of a call. The SDKs' own time-outs are between two bytes, so that a slow trickle would never end."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Late(Exception):
    """The call did not end in time."""


class _Call(Thread, Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.result: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result.append(self.call())
        except BaseException as error:  # whatever it is, the caller gets it
            self.error = error


def within(seconds: float, call: Callable[[], T], abandon: Callable[[], None]) -> T:
    """What `call` gives or raises. `abandon` makes a call that is still running end, such as by closing its connection.
    Errors: Late after `seconds`."""
    running = _Call(call)
    running.start()
    running.join(seconds)
    if running.is_alive():
        abandon()
        raise Late
    if running.error is not None:
        raise running.error
    return running.result[0]
