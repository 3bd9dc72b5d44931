"""What was changed: for each region its CuIR, and beside it the CUDA that says it."""

from __future__ import annotations

from typing import Final

from cubridge.show.html import Html, element, joined
from cubridge.show.view import Change, View

_CLASSES: Final = {"-": "removed", "+": "added"}


def changes_section(view: View) -> Html:
    if not view.accepted:
        return element("p", "A kernel that was rejected is not shown.")
    if not view.changes:
        return element("p", "Nothing: the kernel computes this already.")
    by = element("p", *(f"{text} " for text in view.by)) if view.by else Html()
    pipeline = element("pre", element("code", view.pipeline), tabindex=0, aria_label="the passes")
    whole = element(
        "details", element("summary", "The whole CuIR, before and after"), _code("the whole CuIR", view.cuir)
    )
    return joined((by, pipeline, *map(_change, view.changes), whole))


def _change(change: Change) -> Html:
    counts = f"+{_count(change.cuda, '+')} −{_count(change.cuda, '-')}"
    head = element(
        "summary", element("code", change.name), " ", element("span", f"{counts} lines of CUDA", class_="quiet")
    )
    sides = (_side(change.name, "CuIR", change.cuir), _side(change.name, "CUDA", change.cuda))
    return element("details", head, element("div", *sides, class_="beside"), open=True)


def _count(lines: tuple[str, ...], mark: str) -> int:
    return sum(line.startswith(mark) for line in lines)


def _side(region: str, language: str, lines: tuple[str, ...]) -> Html:
    return element("div", element("h4", language), _code(f"{region} in {language}", lines))


def _code(label: str, lines: tuple[str, ...]) -> Html:
    rows = (element("span", f"{line}\n", class_=f"line {_CLASSES.get(line[:1], '')}".rstrip()) for line in lines)
    return element("pre", element("code", joined(rows)), class_="diff", tabindex=0, aria_label=label)
