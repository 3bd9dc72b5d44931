"""Tables of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cubridge.show.html import Html, element


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """In a frame of its own, so that a narrow screen moves the table and not the page."""
    first = element("tr", *(element("th", cell, scope="col") for cell in head))
    body = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    inner = element("table", element("thead", first), element("tbody", *body))
    return element("div", inner, class_="wide", tabindex=0, role="group", aria_label=", ".join(filter(None, head)))


def ratio(value: float | None) -> str:
    """An error as a part of its bound."""
    return "" if value is None else f"{value:.3g}"


def mark(is_right: bool, right: str = "yes", wrong: str = "no") -> Html:
    return element("span", right if is_right else wrong, class_="good" if is_right else "bad")
