"""The mask as a heat map: elements below, tiles above, and how the kernel walks them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cubridge.show.html import Html, element, joined
from cubridge.show.tables import table
from cubridge.show.view import CELLS, Mask, Plane, View

NAMES: Final = {".": "hidden", "#": "full", "+": "partial", "f": "full-masked", "o": "needless", "!": "wrong"}
"""Of `CELLS`, as classes of the style sheet name them."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def mask_section(view: View) -> Html:
    mask = view.mask
    if mask is None:
        return element("p", "It is not drawn: it has too many elements, or the kernel does not show its tiles.")
    size = f"{mask.rows} query rows and {mask.keys} keys, in tiles of {mask.tile_rows} by {mask.tile_keys}"
    more = element("p", f"{mask.more} more kinds of batches and heads are not shown.") if mask.more else Html()
    return joined(
        (
            element("p", f"{size}."),
            legend(mask),
            element("div", *(_figure(mask, p) for p in mask.planes), class_="planes"),
            more,
        )
    )


def legend(mask: Mask) -> Html:
    """The kinds of tiles that there are."""
    used = {letter for plane in mask.planes for row in plane.tiles for letter in row}
    entries = (
        element("li", element("span", class_=f"swatch {NAMES[letter]}"), said)
        for letter, said in CELLS.items()
        if letter in used
    )
    return element("ul", *entries, class_="legend")


def _figure(mask: Mask, plane: Plane) -> Html:
    tiles = sum(map(len, plane.tiles))
    visited = sum(map(len, plane.steps))
    caption = f"{plane.of}: {visited} of {tiles} tiles visited (query rows down, keys to the right)"
    return element(
        "figure", element("figcaption", caption), zoomable(plane_svg(mask, plane), caption), _lists(mask, plane)
    )


def _lists(mask: Mask, plane: Plane) -> Html:
    """What the picture says, as a table: the key tiles of each query tile in turn."""
    rows = (
        (
            f"{x * mask.tile_rows} to {min((x + 1) * mask.tile_rows, mask.rows) - 1}",
            _in_turn(letters, steps),
            str(len(steps)),
        )
        for x, (letters, steps) in enumerate(zip(plane.tiles, plane.steps, strict=False))
    )
    head = ("rows", "key tiles in turn, m: with the mask", "how many")
    return element("details", element("summary", "Key tiles of each query tile"), table(head, rows))


def _in_turn(letters: str, steps: tuple[int, ...]) -> str:
    masked = {x for x, letter in enumerate(letters) if letter in "+fo"}
    return ", ".join(f"{n}{' m' if n in masked else ''}" for n in steps)


def zoomable(svg: Html, label: str) -> Html:
    """A picture that is moved and enlarged in its frame, by its buttons or by the keys + - and 0; what is touched in it says below
    what it is."""
    buttons = (
        element("button", sign, type="button", data_zoom=by, aria_label=f"{name}: {label}")
        for sign, by, name in (("+", "1.5", "enlarge"), ("−", "0.6667", "reduce"), ("1:1", "0", "whole"))
    )
    frame = element(
        "div", element("div", svg, class_="canvas"), class_="frame", tabindex=0, role="group", aria_label=label
    )
    told = element("output", class_="told")
    return element("div", element("div", *buttons, class_="buttons"), frame, told, class_="zoomable")


def plane_svg(mask: Mask, plane: Plane) -> Html:
    """A unit is an element."""
    return element(
        "svg", *plane_layers(mask, plane), viewbox=f"0 0 {mask.keys} {mask.rows}", class_="mask", role="img",
        aria_label=f"the mask of {plane.of}", xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip


def plane_layers(mask: Mask, plane: Plane) -> Iterator[Html]:
    """Elements, then tiles."""
    if plane.elements and plane.scale > 0 and _BASE64.fullmatch(plane.elements):
        side = {
            "width": -(-mask.keys // plane.scale) * plane.scale,
            "height": -(-mask.rows // plane.scale) * plane.scale,
        }
        address = f"data:image/png;base64,{plane.elements}"
        yield element("image", href=address, x=0, y=0, preserveAspectRatio="none", class_="elements", **side)
    down, right = -(-mask.rows // max(1, mask.tile_rows)), -(-mask.keys // max(1, mask.tile_keys))
    for y, (row, steps) in enumerate(zip(plane.tiles[:down], plane.steps, strict=False)):
        yield from (_tile(mask, letter, x, y, steps) for x, letter in enumerate(row[:right]) if letter in NAMES)


def _tile(mask: Mask, letter: str, x: int, y: int, steps: tuple[int, ...]) -> Html:
    left, top = x * mask.tile_keys, y * mask.tile_rows
    right, bottom = min(left + mask.tile_keys, mask.keys), min(top + mask.tile_rows, mask.rows)
    turn = f", step {steps.index(x) + 1} of {len(steps)}" if x in steps else ""
    said = f"rows {top} to {bottom - 1}, keys {left} to {right - 1}: {CELLS[letter]}{turn}"
    return element(
        "rect", element("title", said), x=left, y=top, width=right - left, height=bottom - top,
        class_=f"tile {NAMES[letter]}",
    )  # fmt: skip
