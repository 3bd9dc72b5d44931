"""Arrays of numpy that a reference reads as tensors: each call reads these where they lie, so that what they hold is not fixed,
unless the reference also reads numbers of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from cubridge.frontend.reference.fixed import Elements, Fixed, FixedValue
from cubridge.frontend.reference.reach import follow
from cubridge.frontend.reference.record import Recording
from cubridge.ir.diagnostics import CuError

Array = np.ndarray[Any, Any]


def without_live_arrays(recording: Recording, again: Callable[[], Recording]) -> Recording:
    """The recording, with arrays no longer fixed that another one, made while they hold other numbers, is the same as."""
    routes = [real.state.route for real in recording.reals if real.state is not None]
    live = [f for f in recording.kept if _is_array(f) and f.route in routes]
    if not live:
        return recording
    try:
        with _other_elements([follow(f.root, f.route) for f in live]):
            other = again().said()
    except CuError:
        return recording
    if other != recording.said():
        return recording
    return replace(recording, kept=tuple(f for f in recording.kept if f not in live))


def _is_array(fixed: Fixed) -> bool:
    return isinstance(fixed, FixedValue) and isinstance(fixed.value, Elements)


@contextmanager
def _other_elements(arrays: Sequence[Array]) -> Generator[None]:
    """Inside, no element is what it was."""
    before = [a.copy() for a in arrays]
    try:
        for a in arrays:
            np.copyto(a, ~a if a.dtype.kind == "b" else np.nan_to_num(a, posinf=0, neginf=0) + 1)
        yield
    finally:
        for a, was in zip(arrays, before, strict=True):
            np.copyto(a, was)
