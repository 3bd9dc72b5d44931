"""The page: every section, every text escaped, and no way out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubridge.ir.diagnostics import CuError
from cubridge.show import checks, compiled, plots
from cubridge.show.page import SECTIONS, framed, page
from cubridge.show.view import CELLS, Run, Speed, Timed, View, read_speed, read_view, view_json
from tests.support.views import HOSTILE, hostile, small_speed, small_view

_VOID = {"meta", "input", "br"}


class _Read(HTMLParser):
    """Elements and attributes of a page; a closing tag that closes nothing, or another, is a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@cache
def small_page() -> str:
    return page(small_view(), small_speed())


@cache
def hostile_page() -> str:
    return page(hostile(small_view()), hostile(small_speed()))


def read(text: str) -> _Read:
    found = _Read()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def links(found: _Read) -> Iterator[str]:
    for _, attributes in found.elements:
        yield from (value or "" for name, value in attributes.items() if name in ("href", "src", "xlink:href"))


def test_every_section_is_there_and_every_link_leads_somewhere() -> None:
    found = read(small_page())
    names = [a["id"] for _, a in found.elements if a.get("id")]
    assert len(names) == len(set(names))
    assert {*SECTIONS, "speed", "L3", "L4"} <= set(names)
    here = [link for link in links(found) if link.startswith("#")]
    assert {link[1:] for link in here} <= set(names)
    assert "#L4" in here
    text = "".join(found.text)
    for said in ("j <= i", "1 m, 0", "mask dropped", "nobody", "168", "no GPU", "500", "memory", "value engine"):
        assert said in text


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = small_page()
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links(read(text)))
    assert "default-src &#x27;none&#x27;" in text
    assert set(re.findall(r"https?://[^\"'\s<]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_hostile_texts_stay_texts() -> None:
    plain, attacked = read(small_page()), read(hostile_page())
    shape = [(tag, sorted(a)) for tag, a in attacked.elements if tag in ("script", "img", "style", "iframe")]
    assert shape == [(tag, sorted(a)) for tag, a in plain.elements if tag in ("script", "img", "style", "iframe")]
    assert "window.hacked" in "".join(attacked.text)
    assert not any(
        "window.hacked = 2" in (v or "") and n.startswith("on") for _, a in attacked.elements for n, v in a.items()
    )


def test_a_page_within_a_page_is_apart() -> None:
    (frame,) = read(framed(hostile_page())).elements
    assert frame[0] == "iframe"
    assert frame[1]["sandbox"] == "allow-scripts"
    assert HOSTILE[:20] not in framed(hostile_page())


def test_of_a_rejected_kernel_no_text_is_shown() -> None:
    view = replace(small_view(), accepted=False, verdict="rejected", changes=(), timeline=None)
    text = page(view)
    assert "REJECTED" in text
    assert "kernel that was rejected is not shown" in text


def test_without_the_library_the_tables_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda _: None)
    plots.library_is_missing.cache_clear()
    try:
        text = page(small_view(), small_speed())
    finally:
        plots.library_is_missing.cache_clear()
    assert text.count("Plots need matplotlib: pip install") == 2
    assert 'class="plot"' not in text


def test_pictures_take_their_colours_from_the_page() -> None:
    text = small_page()
    assert text.count('class="plot"') == 2
    assert "#0102" not in text
    assert "var(--line-0)" in text
    assert ">0.1<" in text and "mathdefault" not in text


def test_each_kind_of_tile_is_told_apart() -> None:
    view = small_view()
    assert view.mask is not None
    letters = "".join(CELLS)
    plane = replace(view.mask.planes[0], tiles=(letters,), steps=((1, 2),))
    text = page(replace(view, mask=replace(view.mask, rows=32, keys=192, planes=(plane,))))
    assert all(said in text for said in CELLS.values())
    assert "rows 0 to 31, keys 32 to 63: visible, walked without the mask, step 1 of 2" in text


@given(st.from_type(View), st.none() | st.from_type(Speed))
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_view_says_makes_a_page(view: View, speed: Speed | None) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for user in (checks, compiled):
            patched.setattr(user, "library_is_missing", lambda: "no plots")
        read(page(view, speed))


@given(st.lists(st.from_type(Run), max_size=10), st.lists(st.from_type(Timed), max_size=3))
@settings(max_examples=4, deadline=None, derandomize=True)
def test_whatever_runs_say_can_be_plotted(runs: list[Run], timed: list[Timed]) -> None:
    read(plots.error_plot("a stage", runs))
    read(plots.speed_plot(Speed("a device", "a shape", tuple(timed))))


def test_a_view_is_read_back() -> None:
    view, speed = small_view(), small_speed()
    assert read_view("view.json", view_json(view)) == view
    assert read_speed("bench.json", view_json(speed)) == speed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kernel": 3}, "kernel is no str"),
        ({"runs": {}}, "runs is written as a list"),
        ({"mask": []}, "Mask is written as an object"),
        ({"colour": "red"}, "View has no 'colour'"),
        ({"kernel": None}, "kernel is no str"),
        ({"runs": [{**asdict(small_view().runs[0]), "worst": 10**400}]}, "worst is not finite"),
        ({"runs": [{**asdict(small_view().runs[0]), "worst": float("inf")}]}, "worst is not finite"),
    ],
)
def test_what_is_no_view_is_refused(change: dict[str, object], said: str) -> None:
    data = {**json.loads(view_json(small_view())), **change}
    with pytest.raises(CuError) as error:
        read_view("view.json", json.dumps(data).encode())
    assert error.value.diagnostics[0].code == "CU842"
    assert said in error.value.diagnostics[0].message


def test_what_lacks_a_field_or_is_no_json_is_refused() -> None:
    data = json.loads(view_json(small_view()))
    del data["kernel"]
    for text in (json.dumps(data).encode(), b"[", b"[" * 100_000, b"\xff"):
        with pytest.raises(CuError, match="does not hold a view"):
            read_view("view.json", text)
