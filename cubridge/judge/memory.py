"""Answers on disk, by the content of the question and of the code that answers it. What is damaged there is asked again."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Final

from cubridge.backend.compile.cache import content_key, default_cache_dir

PACKAGE: Final = Path(__file__).parents[1]


class Memory:
    """What one judge said. `code`: patterns, from the package, of the files that its answers follow from; `distribution`: another
    package that they rest on."""

    def __init__(self, name: str, code: Iterable[str], distribution: str, package: Path = PACKAGE) -> None:
        self._name, self._code, self._distribution, self._package = name, tuple(code), distribution, package

    def remembered(self, question: tuple[object, ...], answer: Callable[[], list[str]]) -> list[str]:
        """The answer to a question that a run before had, else the one that `answer` gives. A question is told by its `repr`; an
        error is no answer."""
        path = default_cache_dir() / self._name / f"{content_key(self._judge, *question)}.json"
        known = _read(path)
        if known is not None:
            return known
        found = answer()
        _write(path, found)
        return found

    @cached_property
    def _judge(self) -> str:
        files = {path for pattern in self._code for path in self._package.glob(pattern)}
        return content_key(version(self._distribution), *(path.read_bytes() for path in sorted(files)))


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
