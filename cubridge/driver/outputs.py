"""Names of the files that an adaptation is written to."""

from __future__ import annotations

from typing import Final

REFERENCE: Final = "adapted_reference.py"
"""A copy of the file of the reference, by which a folder is checked and loaded wherever it lies."""
VIEW: Final = "view.json"
"""What the page of `cuirc show` shows."""
PAGE: Final = "report.html"
BENCH: Final = "bench.json"
"""Written later, by `cuirc show` and `cuirc bench`; those of an earlier result go."""
_BACKWARD: Final = tuple(f"backward{part}.{kind}" for part in ("_rows", "", "_dq") for kind in ("cu", "cuir"))
FILES: Final = (
    REFERENCE, *_BACKWARD, "backward.patch",
    "kernel.cu", "kernel.patch", "source.cuir", "target.cuir", "pipeline.toml", "report.json", "report.md", "timings.json", VIEW,
    PAGE, BENCH,
)  # fmt: skip
