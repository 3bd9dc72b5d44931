"""docs/show.md: its rates are those of the engine, its sections those of the page, its picture what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cubridge.engine.order.events import Kind
from cubridge.engine.order.timing import RATES
from cubridge.show.page import SECTIONS, SPEED
from tests.support.command import cuirc

PAGE = Path(__file__).parents[2] / "docs" / "show.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_every_section_is_told() -> None:
    told = re.findall(r"^\| ([A-Z][^|]*) \|", TEXT, re.MULTILINE)
    assert {name for row in told for name in row.split(", ")} == {title for title, _ in SECTIONS.values()} | {SPEED[1]}


def test_the_rates_are_those_of_the_engine() -> None:
    rows = dict(re.findall(r"^\| (start|copy|gemm|region)[^|]* \| (.*) \|", TEXT, re.MULTILINE))
    told = {kind: [int(n) for n in re.findall(r"\b(?!1\b)\d+", text)] for kind, text in rows.items()}
    assert told == {k: [n for n in (RATES[Kind(k)].fixed, RATES[Kind(k)].each) if n] for k in rows}
    assert RATES[Kind.START] == RATES[Kind.SIGNAL] == RATES[Kind.WAIT]
    assert len(rows) == 4


def test_the_picture_is_what_the_command_prints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    command, code, picture = re.findall(r"^```(?:sh|python sliding.py|text)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    (tmp_path / "sliding.py").write_text(code, encoding="utf-8")
    given, _, lines = command.partition(" | tail -")
    arguments = shlex.split(given)[1:]
    ended = cuirc(*(tmp_path / a if a == "sliding.py" else a for a in arguments))
    printed = "\n".join(ended.out.decode().splitlines()[-int(lines) :]) + "\n"
    if request.config.getoption("--update-cases"):
        PAGE.write_text(TEXT.replace(f"```text\n{picture}```", f"```text\n{printed}```"), encoding="utf-8")
    else:
        assert printed == picture
