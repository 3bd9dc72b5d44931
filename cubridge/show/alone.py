"""Pictures as files of their own, with the part of the style sheet that they need."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from cubridge.show.html import Html, element, joined


def alone(layers: Iterable[str], width: float, height: float, label: str, shown: float = 1.0) -> str:
    """An SVG file, shown at a part of its size. It follows light and dark as the page does."""
    style = element(
        "style",
        Html(files("cubridge.show").joinpath("page.css").read_text(encoding="utf-8").partition("/* page */")[0]),
    )
    picture = element(
        "svg", element("title", label), style, *layers, xmlns="http://www.w3.org/2000/svg",
        viewbox=f"0 0 {width:g} {height:g}", width=shown * width, height=shown * height,
    )  # fmt: skip
    return joined((picture, "\n"))
