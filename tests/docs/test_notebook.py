"""docs/trace.ipynb: every cell prints what stands below it. `pytest --update-cases` writes what it prints now."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "trace.ipynb"


def run(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells with what they print."""
    names: dict[str, object] = {}
    found: list[dict[str, Any]] = []
    for cell in cells:
        if cell["cell_type"] == "code":
            printed = StringIO()
            with redirect_stdout(printed):
                exec(compile("".join(cell["source"]), f"<{cell['id']}>", "exec"), names)
            text = printed.getvalue().splitlines(keepends=True)
            cell = {**cell, "outputs": [{"name": "stdout", "output_type": "stream", "text": text}] if text else []}
        found.append(cell)
    return found


def test_every_cell_prints_what_stands_below_it(request: pytest.FixtureRequest) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = run(notebook["cells"])
    if request.config.getoption("--update-cases"):
        text = json.dumps({**notebook, "cells": cells}, indent=1, ensure_ascii=False)
        NOTEBOOK.write_text(text + "\n", encoding="utf-8")
    else:
        assert cells == notebook["cells"]
        assert sum(cell["cell_type"] == "code" for cell in cells) >= 5
