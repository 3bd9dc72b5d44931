"""Who does what when: a lane for each warpgroup, and for what goes on beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cubridge.show.html import Html, element, joined
from cubridge.show.mask import zoomable
from cubridge.show.view import Bar, Timeline, View

KINDS: Final = {
    "copy": "copy",
    "gemm": "gemm",
    "region": "region",
    "wait": "wait",
    "signal": "signal",
    "start": "start of a copy or gemm",
}
LANE, BAR, MARGIN, WIDTH = 34, 22, 150, 1000


def timeline_section(view: View) -> Html:
    timeline = view.timeline
    if timeline is None:
        return element("p", "A kernel that was rejected is not looked at.")
    counts = " and ".join(map(str, timeline.counts))
    work = "a work tile" if len(timeline.counts) == 1 else "work tiles"
    text = (
        f"One block with {work} of {counts} key tiles, from the order engine's events: what waits for what is the kernel's; "
        "durations are nominal (a copy by its bytes, a gemm by its multiplications, a region by its elements), not measured. "
        "The critical path is outlined."
    )
    critical = [b for b in timeline.bars if b.critical]
    return joined(
        (
            element("p", text),
            _legend(),
            element("figure", zoomable(timeline_svg(timeline), "timeline of a block")),
            _critical_path(timeline, critical),
        )
    )


def _legend() -> Html:
    entries = (element("li", element("span", class_=f"swatch bar-{kind}"), said) for kind, said in KINDS.items())
    return element("ul", *entries, class_="legend")


def timeline_svg(timeline: Timeline) -> Html:
    return element(
        "svg", *timeline_layers(timeline), viewbox=f"0 0 {WIDTH} {LANE * len(timeline.lanes)}", class_="timeline", role="img",
        aria_label="timeline of a block",
    )  # fmt: skip


def timeline_layers(timeline: Timeline) -> Iterator[Html]:
    """Names of lanes, then bars, those of the critical path above the others."""
    for x, name in enumerate(timeline.lanes):
        yield element("text", name, x=0, y=x * LANE + LANE // 2, class_="lane", dominant_baseline="middle")
    scale = (WIDTH - MARGIN) / max([1, *(b.end for b in timeline.bars)])
    for bar in sorted(timeline.bars, key=lambda b: (b.critical, b.start)):
        yield _bar(bar, scale)


def _bar(bar: Bar, scale: float) -> Html:
    kind = bar.kind if bar.kind in KINDS else "region"
    said = f"{bar.text} — {KINDS[kind]}, {bar.start} to {bar.end}{', critical' if bar.critical else ''}"
    return element(
        "rect", element("title", said), x=MARGIN + bar.start * scale, width=max((bar.end - bar.start) * scale, 0.6),
        y=bar.lane * LANE + (LANE - BAR) // 2, height=BAR, class_=f"bar bar-{kind}{' critical' if bar.critical else ''}",
    )  # fmt: skip


def _critical_path(timeline: Timeline, bars: list[Bar]) -> Html:
    """As a list, for who cannot hover; without what takes no time."""
    long = [b for b in bars if b.kind in ("copy", "gemm", "region")]
    rows = (
        element(
            "tr",
            *(element("td", c) for c in (str(b.start), str(b.end), _lane(timeline, b), b.kind)),
            element("td", element("code", b.text)),
        )
        for b in sorted(long, key=lambda b: b.start)
    )
    head = element("tr", *(element("th", c, scope="col") for c in ("begins", "ends", "where", "what", "statement")))
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("details", element("summary", f"The critical path: {len(long)} copies, gemms and regions"), table)


def _lane(timeline: Timeline, bar: Bar) -> str:
    return timeline.lanes[bar.lane] if 0 <= bar.lane < len(timeline.lanes) else ""
