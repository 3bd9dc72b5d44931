"""docs/gallery.md and its pictures are what the code makes. `pytest -m '' --update-cases` writes them; the slow test looks at every
card, the other at two."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path
from zlib import decompress

import pytest

from cubridge.driver.view.gallery import Card, example_card, kernel_card, page, write
from tests.support.variants import VARIANTS

DOCS = Path(__file__).parents[2] / "docs"
GALLERY = DOCS / "gallery"
KERNELS = ("sm80", "sm90a")


def drawn(svg: str) -> str:
    """A picture with its pixels in the place of their compressed form, which depends on the library."""
    return re.sub(r"data:image/png;base64,([^\"]*)", lambda found: repr(_pixels(b64decode(found[1]))), svg)


def _pixels(png: bytes) -> bytes:
    start = png.index(b"IDAT")
    size = int.from_bytes(png[start - 4 : start], "big")
    return png[: start - 4] + decompress(png[start + 4 : start + 4 + size])


def check(cards: list[Card]) -> None:
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for card in cards:
        assert card.text in text
        assert drawn((GALLERY / f"{card.name}.svg").read_text(encoding="utf-8")) == drawn(card.picture)


def test_two_cards_are_what_the_code_makes() -> None:
    check([kernel_card("sm90a"), example_card(VARIANTS["causal_top_left"].path)])


def test_every_example_and_every_kernel_has_a_card() -> None:
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == [*KERNELS, *VARIANTS]
    assert {p.name for p in GALLERY.iterdir()} == {f"{name}.svg" for name in (*KERNELS, *VARIANTS)}


@pytest.mark.slow
def test_the_gallery_is_what_the_code_makes(request: pytest.FixtureRequest) -> None:
    kernels, examples = [*map(kernel_card, KERNELS)], [example_card(v.path) for v in VARIANTS.values()]
    if request.config.getoption("--update-cases"):
        (DOCS / "gallery.md").write_text(page(kernels, examples), encoding="utf-8")
        write((*kernels, *examples), GALLERY)
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == page(kernels, examples)
    check([*kernels, *examples])
