"""The program of a child process that does what `bombs` holds."""

from __future__ import annotations

from cubridge.driver.sandbox.child import serve
from tests.driver.sandbox.bombs import BOMBS

if __name__ == "__main__":
    serve(*BOMBS)
