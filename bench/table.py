"""Results as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


def render(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    cells = [[_cell(x) for x in row] for row in rows]
    widths = [max(len(h), *(len(row[n]) for row in cells)) if cells else len(h) for n, h in enumerate(header)]
    numeric = [
        bool(rows) and all(isinstance(row[n], (int, float)) or row[n] is None for row in rows)
        for n in range(len(header))
    ]

    def line(row: Sequence[str]) -> str:
        padded = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
        return "| " + " | ".join(padded) + " |"

    rule = (
        "|" + "|".join("-" * (w + 1) + (":" if right else "-") for w, right in zip(widths, numeric, strict=True)) + "|"
    )
    return "\n".join((line(list(header)), rule, *(line(row) for row in cells)))


def _cell(value: object) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def write_json(path: Path | None, data: object) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1, default=str) + "\n")
