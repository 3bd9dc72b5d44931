"""Signs of what a launch computes from sizes: floats as well as integers, all finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cubridge.ir.algebra.interval import AT_LEAST_ONE, REALS, Interval, image_of
from cubridge.ir.nodes import NAMED_CONSTANTS, SIZES, Expr, Name

_NAMES: Final[Mapping[Expr, Interval]] = {
    **{Name(size): AT_LEAST_ONE for size in SIZES},
    **{Name(name): Interval.exactly(NAMED_CONSTANTS[name]) for name in ("LOG2E", "LN2", "pi")},
}


def is_positive(expr: Expr) -> bool:
    """Is a host expression surely greater than 0."""
    return host_interval(expr).low > 0


def is_nonnegative(expr: Expr) -> bool:
    """Is an expression surely no less than 0."""
    return host_interval(expr).low >= 0


def host_interval(expr: Expr) -> Interval:
    """An interval of a host expression, as its form shows it."""
    known = _NAMES.get(expr)
    return image_of(expr, host_interval, REALS) if known is None else known
