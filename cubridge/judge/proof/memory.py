"""Answers on disk, by the content of the question and of the prover. What is damaged there is asked again."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from cubridge.backend.compile.cache import content_key, default_cache_dir


def remembered(question: tuple[object, ...], answer: Callable[[], list[str]]) -> list[str]:
    """The answer to a question that a run before had, else the one that `answer` gives. A question is told by its `repr`."""
    path = default_cache_dir() / "proofs" / f"{content_key(_prover(), *question)}.json"
    known = _read(path)
    if known is not None:
        return known
    found = answer()
    _write(path, found)
    return found


@cache
def _prover() -> str:
    """One hash of this package, of what it rests on and of the solver."""
    here, package = Path(__file__).parent, Path(__file__).parents[2]
    files = sorted([*here.glob("*.py"), *(package / "ir").rglob("*.py"), package / "verify" / "ranges.py"])
    return content_key(version("z3-solver"), *(path.read_bytes() for path in files))


def _read(path: Path) -> list[str] | None:
    try:
        saved = json.loads(path.read_text())
        answer = [str(x) for x in saved["answer"]]
        return answer if saved["check"] == content_key(*answer) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, answer: list[str]) -> None:
    """Whole or not at all; where the folder cannot be written, the next run asks again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(json.dumps({"answer": answer, "check": content_key(*answer)}))
        os.replace(file.name, path)
    except OSError:
        return
