"""A limit of time for the user's code: Python that does not come to an end is stopped where it stands."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator
from contextlib import contextmanager

SECONDS = 120.0
"""A reference takes a second or less to read."""


class OutOfTime(BaseException):
    """No `Exception`, so that code which catches these does not go on."""


@contextmanager
def time_limit() -> Generator[None]:
    """Errors: OutOfTime, raised in this thread while it runs Python."""
    thread, ended, lock = threading.get_ident(), threading.Event(), threading.Lock()

    def watch() -> None:
        if not ended.wait(SECONDS):
            with lock:
                if not ended.is_set():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(OutOfTime))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            ended.set()
        watcher.join()
