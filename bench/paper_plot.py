"""What was measured of the paper's grid as pictures: for each direction, speed by length of every variant and head layout."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.candidates import COLUMNS
from bench.paper_tables import Measured, by, layout, short
from bench.row import columns_of
from bench.speed import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE: Final = (2.1, 1.8)
"""Inches of a plot."""
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none", "svg.hashsalt": "paper", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def write_plots(folder: Path, measured: Measured, say: Callable[[str], None]) -> None:
    if find_spec("matplotlib") is None:
        say("without plots (pip install matplotlib)")
        return
    import matplotlib

    for direction, rows in by(measured, lambda cell: cell.direction).items():
        with matplotlib.rc_context(_STYLE):
            figure(rows).savefig(folder / f"{direction}.svg", metadata={"Date": None})


def figure(rows: Measured) -> Figure:
    """Columns are variants, rows are head layouts."""
    from matplotlib.figure import Figure

    layouts = by(rows, layout)
    variants = list(dict.fromkeys(cell.variant for cell, _ in rows))
    size = (_SIZE[0] * len(variants), _SIZE[1] * len(layouts) + 0.4)
    made = Figure(figsize=size, layout="constrained")
    grid = made.subplots(len(layouts), len(variants), squeeze=False, sharex=True)
    for line, (heads, of_layout) in zip(grid, layouts.items(), strict=True):
        line[0].set_ylabel(f"{heads} heads\nTFLOP/s")
        of_variant = by(of_layout, lambda cell: cell.variant)
        for axes, name in zip(line, variants, strict=True):
            _draw(axes, of_variant.get(name, ()))
    for axes, name in zip(grid[0], variants, strict=True):
        axes.set_title(name.replace("_", " "))
    shown = {name: handle for axes in made.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    made.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=max(1, len(shown)), frameon=False)
    return made


def _draw(axes: Axes, rows: Measured) -> None:
    ordered = sorted(rows, key=lambda found: found[0].shape.Lq)
    lengths = [cell.shape.Lq for cell, _ in ordered]
    for column in columns_of([row for _, row in ordered]):
        speeds = [row.tflops(column) or float("nan") for _, row in ordered]
        width = 2.0 if column == OURS else 1.0
        axes.plot(lengths, speeds, "o-", color=f"C{COLUMNS.index(column)}", linewidth=width, markersize=2, label=column)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [short(length) for length in lengths])
    axes.set_ylim(bottom=0)
