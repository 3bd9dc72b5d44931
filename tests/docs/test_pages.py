"""docs/semantics.md and docs/gradients.md: every example prints what stands below it. `pytest --update-cases` writes what it prints
now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("semantics", "gradients")}
_SHARED = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_EXAMPLE = re.compile(
    r"(?<=^```python\n)(?P<code>[^`]*?)^```\n```text\n(?P<prints>.*?)^```\n", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Example:
    """`start`, `end`: where what it prints stands on the page."""

    page: str
    title: str
    code: str
    prints: str
    start: int
    end: int

    def run(self) -> str:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(self.code, f"<{self.title}>", "exec"), dict(shared(self.page)))
        return printed.getvalue()


def _examples() -> Iterator[Example]:
    for page, text in PAGES.items():
        for found in _EXAMPLE.finditer(text):
            title = re.findall(r"^## (.*)$", text[: found.start()], re.MULTILINE)[-1]
            yield Example(page, title, found["code"], found["prints"], found.start("prints"), found.end("prints"))


EXAMPLES = list(_examples())


@cache
def shared(page: str) -> dict[str, object]:
    """The lines that all examples of a page share, run once."""
    first = _SHARED.search(PAGES[page])
    assert first is not None
    names: dict[str, object] = {}
    exec(compile(first[1], "<shared>", "exec"), names)
    return names


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.title)
def test_example(example: Example, request: pytest.FixtureRequest) -> None:
    printed = example.run()
    if request.config.getoption("--update-cases"):
        path = DOCS / f"{example.page}.md"
        page = path.read_text(encoding="utf-8")
        path.write_text(
            page.replace(example.code + "```\n```text\n" + example.prints, example.code + "```\n```text\n" + printed)
        )
    else:
        assert printed == example.prints


def test_every_decision_has_an_example() -> None:
    titles = dict.fromkeys(e.title for e in EXAMPLES if e.page == "semantics")
    assert list(titles) == re.findall(r"^## (.*)$", PAGES["semantics"], re.MULTILINE)
    assert len(titles) >= 10
    assert {e.page for e in EXAMPLES} == set(PAGES)
