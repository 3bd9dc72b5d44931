"""The mask as text: a sign a tile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cubridge.show.view import Mask, Plane

SIGNS: Final = {".": "·", "#": "█", "+": "▒", "f": "▓", "o": "░", "!": "?"}
_SAID: Final = {".": "hidden", "#": "visible", "+": "partly visible"}


def mask_text(mask: Mask) -> str:
    """Query tiles down, key tiles to the right; a picture for each kind of batches and heads."""
    head = f"{mask.rows} query rows down, {mask.keys} keys to the right; a sign is {mask.tile_rows} rows by {mask.tile_keys} keys"
    legend = "   ".join(f"{SIGNS[letter]} {said}" for letter, said in _SAID.items())
    more = [f"{mask.more} more kinds of batches and heads"] if mask.more else []
    return "\n".join([head, legend, *(line for plane in mask.planes for line in _plane(mask, plane)), *more])


def _plane(mask: Mask, plane: Plane) -> Iterator[str]:
    counts = {letter: sum(row.count(letter) for row in plane.tiles) for letter in "#+."}
    yield f"{plane.of}: {counts['#']} visible, {counts['+']} partly, {counts['.']} hidden"
    width = len(str(mask.rows))
    for x, row in enumerate(plane.tiles):
        yield f"{x * mask.tile_rows:>{width}}  {''.join(SIGNS[letter] for letter in row)}"
