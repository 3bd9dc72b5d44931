"""docs/pytorch.md by a reader: every example prints what stands below it, on the emulator, without the checks of kernels."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from tests.support.unchecked import unchecked

FIRST, *SECTIONS = re.split(
    r"^## ", (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text("utf-8"), flags=re.MULTILINE
)
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NEEDS = {"Models of transformers": "transformers"}
"""Sections that need another package."""


def title_of(section: str) -> str:
    return section.partition("\n")[0]


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=title_of)
def test_a_section_prints_what_it_says(section: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    title = title_of(section)
    if title in NEEDS:
        pytest.importorskip(NEEDS[title], reason="`make integrations` installs it")
    unchecked(monkeypatch, tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    printed = StringIO()
    for kind, text in (*BLOCK.findall(FIRST), *BLOCK.findall(section)):
        if kind == "text":
            assert printed.getvalue() == text
            printed = StringIO()
            continue
        with redirect_stdout(printed):
            exec(compile(text, f"<{title}>", "exec"), names)
    assert not printed.getvalue()
