"""Plots over axes, by matplotlib, as SVG within the page: colours are the style sheet's, so that light and dark are its affair."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from cubridge.show.html import Html, printable
from cubridge.show.view import Run, Speed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _LIMIT, _BARS = "#010203", "#010204", "#010205"
_LINES: Final = tuple(f"#0102{10 + x:02d}" for x in range(8))
_THEME: Final = {_INK: "var(--ink)", _LIMIT: "var(--bad)", _BARS: "var(--visible)"} | {
    colour: f"var(--line-{x})" for x, colour in enumerate(_LINES)
}
"""Colours that matplotlib is given, and what the page makes of them."""
_STYLE: Final = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "text.color": _INK, "axes.edgecolor": _INK, "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
    "text.parse_math": False, "legend.frameon": False, "legend.fontsize": 8, "figure.facecolor": "none", "axes.facecolor": "none",
}  # fmt: skip
_LONGEST: Final = 60
"""Characters of a label."""
_LEAST: Final = 1e-3
"""Errors below it are shown as this: the axis is logarithmic."""


@cache
def library_is_missing() -> str:
    """What to install for plots; "" where there is nothing to."""
    return "" if find_spec("matplotlib") is not None else "Plots need matplotlib: pip install 'cubridge[show]'"


def error_plot(stage: str, runs: Sequence[Run]) -> Html:
    """Error over bound by query row, a line for each run."""

    def draw(axes: Axes) -> None:
        for x, run in enumerate(runs):
            rows = [n * run.per_row for n in range(len(run.rows))]
            errors = [max(_LEAST, r) if r is not None else float("nan") for r in run.rows]
            style = "o" if len(rows) == 1 else "-" if x < len(_LINES) else ":"
            axes.plot(
                rows,
                errors,
                style,
                color=_LINES[x % len(_LINES)],
                linewidth=1,
                label=_label(f"{run.inputs}, {run.shape}"),
            )
        axes.axhline(1.0, color=_LIMIT, linewidth=1, linestyle="--")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.set_xlabel("query row")
        axes.set_ylabel("error / bound")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))

    return _figure(draw, (9.0, 2.8), f"errors of {stage} by query row")


def speed_plot(speed: Speed) -> Html:
    """TFLOP/s of each candidate."""
    timed = [t for t in speed.timed if t.fault is None][::-1]

    def draw(axes: Axes) -> None:
        axes.barh([_label(t.name) for t in timed], [t.tflops for t in timed], color=_BARS, height=0.6)
        axes.set_xlabel("TFLOP/s")

    return _figure(draw, (7.0, 0.6 + 0.35 * len(timed)), "speed of each candidate")


def _label(text: str) -> str:
    return "".join(c for c in printable(text) if c.isprintable())[:_LONGEST]


def _figure(draw: Callable[[Axes], None], size: tuple[float, float], label: str) -> Html:
    import matplotlib
    from matplotlib.figure import Figure

    salt = sha256(label.encode()).hexdigest()[:8]
    written = StringIO()
    style: dict[Any, Any] = {**_STYLE, "svg.hashsalt": salt}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Title": label})
    return _inlined(written.getvalue(), salt)


def _inlined(svg: str, salt: str) -> Html:
    """Without the head of a file and without a style for all of the page; names are of this picture alone."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<style .*?</style>|<style>.*?</style>|<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{salt}-", body)
    body = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg class="plot" role="img" viewBox="\1">', body, count=1)
    return Html(re.sub("#0102[0-9a-f]{2}", lambda found: _THEME.get(found[0], found[0]), body))
