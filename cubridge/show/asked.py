"""What was asked: the reference beside the formulas that were found in it."""

from __future__ import annotations

from collections.abc import Iterator

from cubridge.show.html import Html, element, joined
from cubridge.show.view import Asked, View


def asked_section(view: View) -> Html:
    asked = view.asked
    formulas = element("dl", *_formulas(asked), class_="formulas")
    return element("div", element("div", formulas), element("div", *_source(asked)), class_="beside")


def _formulas(asked: Asked) -> Iterator[Html]:
    """A formula links to its line, where the source shows it."""
    shown = range(asked.first, asked.first + len(asked.source.splitlines()))
    for formula in asked.formulas:
        yield element("dt", formula.label)
        place = f"line {formula.line}"
        link = element("a", place, href=f"#L{formula.line}", class_="place") if formula.line in shown else ""
        yield element("dd", element("code", formula.text), " ", link)


def _source(asked: Asked) -> Iterator[Html]:
    name = asked.file or "a live callable"
    yield element("p", element("code", asked.name), " of ", element("code", name))
    said = {f.line for f in asked.formulas}
    lines = enumerate(asked.source.splitlines(), asked.first)
    rows = (
        element(
            "span", element("span", str(n), class_="number"), f"{text}\n", id=f"L{n}", class_=_line_class(n in said)
        )
        for n, text in lines
    )
    yield element("pre", element("code", joined(rows)), class_="source", tabindex=0, aria_label="the reference")


def _line_class(is_said: bool) -> str:
    return "line said" if is_said else "line"
