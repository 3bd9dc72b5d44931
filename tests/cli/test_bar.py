"""What long work shows: a line of a terminal that says how long is left, and nothing elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from cubridge.cli.bar import Bar, line, progress_bar
from cubridge.driver.stopwatch import Step, counted

EXAMPLES = Path(__file__).parents[2] / "examples"


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def ticks(*times: float) -> Iterator[float]:
    yield from times


@pytest.mark.parametrize(
    ("step", "seconds", "said"),
    [
        (Step("transfer"), 3.0, "transfer .."),
        (Step("check", 0, 8), 3.0, f"check {'░' * 24} 0/8"),
        (Step("check", 2, 8, "value engine"), 3.0, f"check {'█' * 6}{'░' * 18} 2/8  0:09 left  value engine"),
        (Step("faults", 1, 1000), 10.0, f"faults {'░' * 24} 1/1000  2:46:30 left"),
        (Step("check", 8, 8), 3.0, f"check {'█' * 24} 8/8"),
        (Step("check", 9, 8), 3.0, f"check {'█' * 24} 8/8"),
    ],
)
def test_a_line_says_how_far_it_is(step: Step, seconds: float, said: str) -> None:
    assert line(step, seconds) == said


def test_a_bar_is_one_line_and_gone_at_the_end() -> None:
    stream, times = StringIO(), ticks(0.0, 1.0, 1.01, 2.0)
    bar = Bar(stream, 40, clock=lambda: next(times))
    bar(Step("lower"))
    for done in (1, 2, 3):
        bar(Step("check", done, 4, "a stage with a long name that does not fit"))
    bar.say("a message")
    bar.clear()
    shown = stream.getvalue().split("\r\x1b[2K")
    assert shown[0] == "" and shown[1] == "lower .."
    assert [part[:7] for part in shown[2:4]] == ["check █", "check █"]
    assert all(len(part) <= 39 for part in shown[1:4])
    assert len(shown) == 5 and shown[4] == "a message\n"  # the second look came too soon


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, form, expected in ((StringIO(), "text", "said\n"), (_Terminal(), "json", "")):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar(Namespace(diagnostics=form)) as bar:
            counted(bar, "check", 3)("a run")
            bar.say("said")
        assert stream.getvalue() == expected


def test_a_bar_is_cleared_where_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(KeyboardInterrupt), progress_bar(Namespace(diagnostics="text")) as bar:
        bar(Step("check"))
        raise KeyboardInterrupt
    assert stream.getvalue().endswith("check ..\r\x1b[2K")


@pytest.mark.slow
def test_an_adaptation_in_a_terminal(tmp_path: Path) -> None:
    main, other = pty.openpty()
    command = [sys.executable, "-c", "from cubridge.cli import main; raise SystemExit(main())"]
    given = ["adapt", EXAMPLES / "full.py", "--shape", "1,2,1,130,70,64", "-o", tmp_path / "out"]
    ended = subprocess.Popen([*command, *given], stderr=other, stdout=subprocess.DEVNULL)
    os.close(other)
    seen = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    assert ended.wait() == 0
    text = seen.decode()
    assert re.findall(r"\[2K([a-z ]+) \.\.", text)[:4] == ["read the kernel", "read the reference", "transfer", "lower"]
    assert re.search(r"check █+░* \d+/\d+  \d+:\d\d left", text)
    assert text.endswith("\x1b[2K")
