"""Where slices of an iteration over key tiles, and of what follows the last one, end."""

from __future__ import annotations

from cubridge.frontend.ptx.run import Run
from cubridge.frontend.ptx.slices import Boundary, Slices


def cut(run: Run, number: int) -> Slices:
    """Slices of the same run that end where an iteration begins, or behind the last one; of the first one they do not end."""
    starts = tuple(starts[0] for starts in run.loop.starts)
    return Slices(run.slices.reach, run.slices.given, Boundary(starts, run.loop.begins(number)))
