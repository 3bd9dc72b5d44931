"""A child process whose jobs do what hostile text makes a judge do. It imports little, so that it starts fast."""

from __future__ import annotations

import os
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic

PROGRAM: Final = "tests.driver.sandbox.bombs_child"


def loop() -> None:
    while True:
        pass


def eat() -> bytearray:
    return bytearray(1 << 40)


def die() -> None:
    os.abort()


def fail() -> None:
    [].pop()


def refuse() -> None:
    raise CuError(Diagnostic("CU601", "no", help="x"), exit_code=4)


def chatter() -> int:
    print("not an answer")
    return os.write(1, b"nor is this\n")


def echo(what: str) -> str:
    return what


def unlisted() -> str:
    """In no table: a child that ran whatever it is told would run it."""
    return "run"


BOMBS: Final = (loop, eat, die, fail, refuse, chatter, echo)
