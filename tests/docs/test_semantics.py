"""docs/semantics.md: every example prints what stands below it. `pytest --update-cases` writes what it prints now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "semantics.md"
TEXT = PAGE.read_text(encoding="utf-8")
_SHARED = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_EXAMPLE = re.compile(
    r"(?<=^```python\n)(?P<code>[^`]*?)^```\n```text\n(?P<prints>.*?)^```\n", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Example:
    """`start`, `end`: where what it prints stands on the page."""

    title: str
    code: str
    prints: str
    start: int
    end: int

    def run(self, names: dict[str, object]) -> str:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(self.code, f"<{self.title}>", "exec"), dict(names))
        return printed.getvalue()


def _examples() -> Iterator[Example]:
    for found in _EXAMPLE.finditer(TEXT):
        title = re.findall(r"^## (.*)$", TEXT[: found.start()], re.MULTILINE)[-1]
        yield Example(title, found["code"], found["prints"], found.start("prints"), found.end("prints"))


EXAMPLES = list(_examples())


@pytest.fixture(scope="module")
def shared() -> dict[str, object]:
    """The lines that all examples share, run once."""
    first = _SHARED.search(TEXT)
    assert first is not None
    names: dict[str, object] = {}
    exec(compile(first[1], "<shared>", "exec"), names)
    return names


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.title)
def test_example(example: Example, shared: dict[str, object], request: pytest.FixtureRequest) -> None:
    printed = example.run(shared)
    if request.config.getoption("--update-cases"):
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            page.replace(example.code + "```\n```text\n" + example.prints, example.code + "```\n```text\n" + printed)
        )
    else:
        assert printed == example.prints


def test_every_decision_has_an_example() -> None:
    assert list(dict.fromkeys(e.title for e in EXAMPLES)) == re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert len(EXAMPLES) >= 10
