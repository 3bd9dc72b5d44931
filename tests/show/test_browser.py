"""The page in a real browser: Debian's chromium, without a window. Nothing is fetched but the file itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.judge.findings import CaseResult, Findings, MutantResult, Verdict
from cubridge.show.page import SECTIONS, page
from tests.support.views import hostile, small_speed, small_view

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'cubridge[browser]'")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a real adaptation of documents, and of a view whose texts are hostile."""
    folder = tmp_path_factory.mktemp("pages")
    adapted = adapt_unchecked(EXAMPLES / "documents.py", "sm90a")
    case = CaseResult("value engine", "1,4,2,200,300,64", "steep", 0.4, True, rows=tuple(x / 500 for x in range(200)))
    findings = Findings((case,), (MutantResult("mask dropped", "value engine"),), (), Verdict.INTERPRETED, ())
    adaptation = Adaptation(adapted, adapted.report(findings), {})
    (folder / "hostile.html").write_text(page(hostile(small_view()), hostile(small_speed())), encoding="utf-8")
    frame = f"<!doctype html><title>notebook</title>{adaptation._repr_html_()}"
    (folder / "notebook.html").write_text(frame, encoding="utf-8")
    return {
        "documents": adaptation.show(folder / "documents.html"),
        **{n: folder / f"{n}.html" for n in ("hostile", "notebook")},
    }


@pytest.fixture
def visit(browser: Browser, files: dict[str, Path]) -> Iterator[Any]:
    """Opens a page; whatever it says, asks for or stumbles over fails the test."""
    faults: list[str] = []
    contexts: list[Any] = []

    def opened(name: str, scheme: str = "light", width: int = 1280) -> Page:
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})  # pyright: ignore
        contexts.append(context)
        found = context.new_page()
        found.on("console", lambda message: faults.append(message.text))
        found.on("pageerror", lambda error: faults.append(str(error)))
        found.on("dialog", lambda dialog: faults.append(dialog.message))
        found.on(
            "request",
            lambda request: None if request.url.startswith(("file:", "data:")) else faults.append(request.url),
        )
        found.goto(files[name].as_uri())
        return found

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def test_links_lead_to_their_sections(visit: Any) -> None:
    found = visit("documents")
    for key in (*SECTIONS, "speed"):
        found.click(f'nav a[href="#{key}"]')
        assert found.url.endswith(f"#{key}")
        box = found.locator(f"#{key} h2").bounding_box()
        assert 0 <= box["y"] < 800
    found.click('#asked dd a[href="#L18"]')
    assert found.evaluate("getComputedStyle(document.querySelector('#L18')).outlineStyle") == "solid"
    assert "doc" in found.locator("#L18").inner_text()


def test_folds_open_and_close_by_mouse_and_keyboard(visit: Any) -> None:
    found = visit("documents")
    fold = found.locator("#changes details").first
    for do in (lambda: fold.locator("summary").click(), lambda: fold.locator("summary").press("Enter")):
        before = fold.get_attribute("open") is not None
        do()
        assert (fold.get_attribute("open") is not None) is not before
    found.locator("#timeline summary").click()
    assert found.locator("#timeline details tbody tr").first.is_visible()


def test_pictures_are_enlarged_by_button_and_key(visit: Any) -> None:
    found = visit("documents")
    for section in ("mask", "schedule", "timeline"):
        picture, frame = found.locator(f"#{section} svg").first, found.locator(f"#{section} .frame").first
        width = picture.bounding_box()["width"]
        found.locator(f"#{section} button").first.click()
        assert picture.bounding_box()["width"] == pytest.approx(1.5 * width, rel=0.01)
        frame.focus()
        found.keyboard.press("+")
        assert picture.bounding_box()["width"] == pytest.approx(2.25 * width, rel=0.01)
        found.keyboard.press("0")
        assert picture.bounding_box()["width"] == pytest.approx(width, rel=0.01)


def test_what_is_touched_says_what_it_is(visit: Any) -> None:
    found = visit("documents")
    for section, said in (
        ("mask", "rows 0 to 127, keys 0 to 127"),
        ("timeline", "barrier_wait"),
        ("schedule", "work tile 0"),
    ):
        pictures = found.locator(f"#{section} svg rect")
        pictures.filter(has_text=said).first.click(force=True)
        assert said in found.locator(f"#{section} output").first.inner_text()


def test_all_can_be_reached_by_the_tab_key(visit: Any) -> None:
    found = visit("documents")
    reached: set[str] = set()
    for _ in range(200):
        found.keyboard.press("Tab")
        reached.add(found.evaluate("document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.", "BUTTON.", "DIV.frame", "SUMMARY.", "PRE.source", "PRE.diff"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_stands_out_from_paper(visit: Any, scheme: str) -> None:
    found = visit("documents", scheme)
    paper, ink = (
        found.evaluate(f"getComputedStyle(document.body).{name}.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")
        for name in ("backgroundColor", "color")
    )
    assert (paper > ink) is (scheme == "light")
    assert abs(paper - ink) > 450
    plot = found.evaluate("getComputedStyle(document.querySelector('.plot text')).fill")
    assert (sum(map(int, plot[4:-1].split(","))) < 380) is (scheme == "light")


def test_a_phone_scrolls_no_page_sideways(visit: Any) -> None:
    found = visit("documents", width=360)
    assert found.evaluate("document.documentElement.scrollWidth") <= 360
    assert found.locator("#mask svg").first.bounding_box()["width"] <= 360


def test_hostile_texts_run_nothing(visit: Any) -> None:
    found = visit("hostile")
    assert found.evaluate("window.hacked") is None
    assert "window.hacked" in found.locator("h1").inner_text()


def test_a_notebook_shows_the_page_in_its_frame(visit: Any) -> None:
    inner = visit("notebook").frame_locator("iframe")
    assert "attention" in inner.locator("h1").inner_text()
    width = inner.locator("#mask svg").first.bounding_box()["width"]
    inner.locator("#mask button").first.click()
    assert inner.locator("#mask svg").first.bounding_box()["width"] == pytest.approx(1.5 * width, rel=0.01)
