"""Names of the files that an adaptation is written to."""

from __future__ import annotations

from typing import Final

FILES: Final = (
    "kernel.cu", "kernel.patch", "source.cuir", "target.cuir", "pipeline.toml", "report.json", "report.md", "timings.json",
)  # fmt: skip
