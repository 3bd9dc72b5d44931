"""The events of a kernel and what waits for what, as DOT and as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cubridge.show.alone import alone
from cubridge.show.html import Html, element
from cubridge.show.timeline import BAR, LANE, MARGIN, WIDTH, timeline_layers
from cubridge.show.view import Bar, Timeline

Edge = tuple[int, int]
"""Numbers of two bars: the second waits for the first."""

_COLOURS: Final = {
    "copy": "#3f8f8a", "gemm": "#2d68be", "region": "#d98c1f", "wait": "#b9bec7", "signal": "#8a5fbf", "start": "#7d8590",
}  # fmt: skip
_CRITICAL: Final = "#b3261e"


def dot(name: str, timeline: Timeline, edges: Iterable[Edge]) -> str:
    """For graphviz: a cluster a lane, events from left to right."""
    lines = [f"digraph {_quoted(name)} {{", "  rankdir=LR;", '  node [shape=box, style=filled, fontname="monospace"];']
    for lane, title in enumerate(timeline.lanes):
        own = [(x, b) for x, b in enumerate(timeline.bars) if b.lane == lane]
        lines += [
            f"  subgraph cluster_{lane} {{",
            f"    label={_quoted(title)};",
            *(_node(x, b) for x, b in own),
            "  }",
        ]
    lines += [f"  {a} -> {b}{_edge(timeline.bars, a, b)};" for a, b in edges]
    return "\n".join([*lines, "}"]) + "\n"


def _node(number: int, bar: Bar) -> str:
    outline = f", color={_quoted(_CRITICAL)}, penwidth=3" if bar.critical else ""
    return f"    {number} [label={_quoted(bar.text)}, fillcolor={_quoted(_COLOURS.get(bar.kind, '#ffffff'))}{outline}];"


def _edge(bars: Sequence[Bar], a: int, b: int) -> str:
    return f" [color={_quoted(_CRITICAL)}, penwidth=2]" if bars[a].critical and bars[b].critical else ""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def graph_svg(timeline: Timeline, edges: Iterable[Edge]) -> str:
    """The timeline with an arrow for everything that one lane waits for another; a file of its own."""
    scale = (WIDTH - MARGIN) / max([1, *(b.end for b in timeline.bars)])
    across = (e for e in edges if timeline.bars[e[0]].lane != timeline.bars[e[1]].lane)
    arrows = (_arrow(timeline.bars[a], timeline.bars[b], scale) for a, b in across)
    return alone((*timeline_layers(timeline), *arrows), WIDTH, LANE * len(timeline.lanes), "events of a block")


def _arrow(first: Bar, then: Bar, scale: float) -> Html:
    down = then.lane > first.lane
    top, bottom = (LANE - BAR) // 2, (LANE + BAR) // 2
    is_critical = first.critical and then.critical
    return element(
        "line", x1=MARGIN + first.end * scale, y1=first.lane * LANE + (bottom if down else top),
        x2=MARGIN + max(then.start, first.end) * scale, y2=then.lane * LANE + (top if down else bottom),
        class_="arrow critical" if is_critical else "arrow",
    )  # fmt: skip
