"""The work tiles in the order in which blocks take them, each as long as its list of key tiles."""

from __future__ import annotations

from cubridge.show.html import Html, element, joined
from cubridge.show.mask import zoomable
from cubridge.show.tables import table
from cubridge.show.view import View, Work


def schedule_section(view: View) -> Html:
    work = view.schedule
    if not work:
        return element("p", "There is no work at these sizes.")
    lengths = [w.key_tiles for w in work]
    more = f" ({view.more_work} later ones are not shown)" if view.more_work else ""
    text = (
        f"{len(work)} work tiles{more} with {min(lengths)} to {max(lengths)} key tiles, {sum(lengths)} in all; "
        "blocks take them from left to right. Colours alternate by batch."
    )
    rows = ((str(x), str(w.b), str(w.h), str(w.q_start), str(w.key_tiles)) for x, w in enumerate(work))
    listed = table(("turn", "batch", "head", "first row", "key tiles"), rows)
    fold = element("details", element("summary", "The work tiles in turn"), listed)
    return joined((element("p", text), element("figure", zoomable(_bars(work), "key tiles of each work tile")), fold))


_WIDTH, _GAP, _HEIGHT = 6, 2, 60


def _bars(work: tuple[Work, ...]) -> Html:
    most = max([1, *(w.key_tiles for w in work)])
    bars: list[Html] = []
    for x, tile in enumerate(work):
        height = _HEIGHT * tile.key_tiles / most
        said = f"work tile {x}: batch {tile.b}, head {tile.h}, rows from {tile.q_start}: {tile.key_tiles} key tiles"
        place = {"x": x * (_WIDTH + _GAP), "width": _WIDTH, "class_": f"work batch-{tile.b % 2}"}
        bars.append(element("rect", element("title", said), y=_HEIGHT - height, height=max(height, 0.5), **place))
    return element(
        "svg", *bars, viewbox=f"0 0 {len(work) * (_WIDTH + _GAP)} {_HEIGHT}", class_="schedule", role="img",
        aria_label="key tiles of each work tile", preserveAspectRatio="xMinYMax meet",
    )  # fmt: skip
