"""`cuirc` in this process: what it printed and how it ended."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from cubridge.cli import main

_PLACE = re.compile(
    r"^(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): error\[(?P<code>CU\d+)\]: (?P<message>.+)$", re.M
)
_CODE = re.compile(r"error\[(CU\d+)\]")


@dataclass(frozen=True, slots=True)
class Ended:
    """`given`: the arguments. `out`: stdout, `err`: stderr."""

    given: tuple[str, ...]
    code: int
    out: bytes
    err: str

    @property
    def codes(self) -> list[str]:
        return _CODE.findall(self.err)

    @property
    def places(self) -> list[tuple[str, int, str]]:
        """File, line and code of each located error."""
        return [(m["file"], int(m["line"]), m["code"]) for m in _PLACE.finditer(self.err)]

    @property
    def repeat(self) -> list[str]:
        """The command that repeats the run, from the last line of stderr."""
        last = self.err.splitlines()[-1]
        assert last.startswith("repeat: "), self.err
        return shlex.split(last.removeprefix("repeat: "))


def cuirc(*given: object) -> Ended:
    """Run a command."""
    arguments = tuple(str(a) for a in given)
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as end:  # the end of argparse
            code = int(end.code or 0)
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return Ended(arguments, code, out.buffer.getvalue(), err.getvalue())


def fails(given: Sequence[object], code: str, exit_code: int) -> Ended:
    """Run a command that must be refused: nothing on stdout, no traceback, the command that repeats it; and the same as JSON."""
    ended = cuirc(*given)
    assert ended.code == exit_code, ended.err
    assert ended.codes and ended.codes[0] == code, ended.err
    assert ended.out == b""
    assert "Traceback" not in ended.err
    assert ended.repeat == ["cuirc", *ended.given]
    return ended


def as_json(given: Sequence[object]) -> dict[str, Any]:
    """What the command says with `--diagnostics json`: one JSON text on stderr."""
    ended = cuirc(given[0], "--diagnostics", "json", *given[1:])
    return json.loads(ended.err)


def stdin_of(data: bytes) -> object:
    """Something to put in place of sys.stdin."""
    return io.TextIOWrapper(io.BytesIO(data), encoding=sys.getdefaultencoding())
