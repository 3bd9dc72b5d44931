"""Runs every case file that begins with a command; `pytest --update-cases` rewrites what is expected."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from cubridge.cli import main
from cubridge.ir.codes import CODES
from tests.support.cases import CASES, Case

FILES = sorted(p for p in CASES.rglob("*.cuir") if p.read_text(encoding="utf-8").startswith("# cuirc: "))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CASES).with_suffix("")))
def test_case(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case.read(path)
    stdin = SimpleNamespace(buffer=io.BytesIO(case.input.encode("utf-8")))
    monkeypatch.setattr("sys.stdin", stdin)
    code = main(case.command)
    printed = capsys.readouterr()
    assert code != 70, printed.err
    output = printed.out + _without_repeat(printed.err) + (f"exit {code}\n" if code else "")
    output = output.replace(f"{Path.cwd()}/", "")
    if request.config.getoption("--update-cases"):
        case.update(output)
    else:
        assert output == case.expected


def _without_repeat(text: str) -> str:
    """Diagnostics without the line that says how to repeat the run."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("repeat: "))


def test_there_are_cases() -> None:
    assert len(FILES) > 20


STATIC_CODES = sorted(code for code in CODES if code in ("CU101", "CU102", "CU103") or "CU200" <= code < "CU250")


@pytest.mark.parametrize("code", STATIC_CODES)
def test_every_code_of_parser_and_verifier_has_a_case(code: str) -> None:
    assert any(f"[{code}]" in Case.read(path).expected for path in FILES)
