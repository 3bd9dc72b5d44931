"""A job that does what hostile text makes a judge do. It imports little, so that child processes start fast."""

from __future__ import annotations

import os
from dataclasses import dataclass

from cubridge.ir.diagnostics import CuError, Diagnostic


@dataclass(frozen=True, slots=True)
class Do:
    """One of the things that hostile text makes a judge do."""

    what: str

    def run(self) -> object:
        match self.what:
            case "loop":
                while True:
                    pass
            case "eat":
                return bytearray(1 << 40)
            case "die":
                os.abort()
            case "fail":
                return [][1]
            case "refuse":
                raise CuError(Diagnostic("CU601", "no", help="x"), exit_code=4)
            case "print":
                print("not an answer")
                return os.write(1, b"nor is this\n")
            case _:
                return self.what
