"""docs/extending.md by a reader: the files of a section written, its commands run in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)
SLOW = {"A provider of replies"}
"""Sections with a whole adaptation."""


@pytest.mark.parametrize(
    "title", [pytest.param(t, marks=pytest.mark.slow if t in SLOW else ()) for t, _ in SECTIONS], ids=str
)
def test_a_section_does_what_it_says(title: str, tmp_path: Path) -> None:
    for _, name, text in BLOCK.findall(PAGE):
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    printed = ""
    for kind, _, text in BLOCK.findall(dict(SECTIONS)[title]):
        if kind == "sh":
            run = ["sh", "-ec", text]
            done = subprocess.run(run, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            printed = done.stdout
        elif kind == "text":
            assert printed == text
