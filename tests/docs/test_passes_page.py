"""docs/passes.md is what the classes say. `pytest --update-cases` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.driver.pass_pages import example, page
from cubridge.passes.registry import PASSES
from tests.support.golden_texts import golden_kernel

PAGE = Path(__file__).parents[2] / "docs" / "passes.md"
WITHOUT = {"drop-row-state"}
"""Has nothing to do in a packaged kernel, as its page says."""


def test_the_page_is_of_these_passes(request: pytest.FixtureRequest) -> None:
    text = page(PASSES, golden_kernel("sm80"))
    if request.config.getoption("--update-cases"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", sorted(PASSES.keys() - WITHOUT))
def test_an_example_ends_with_its_pass_and_changes_something(name: str) -> None:
    assert PASSES[name].example.rpartition("}," if "}" in PASSES[name].example else ",")[2].startswith(name) or (
        PASSES[name].example.startswith(name)
    )
    assert example(PASSES[name], golden_kernel("sm80"))
