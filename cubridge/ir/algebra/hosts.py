"""Signs of what a launch computes from sizes: floats as well as integers, all finite."""

from __future__ import annotations

from typing import Final

from cubridge.ir.algebra.interval import AT_LEAST_ONE, EVERYTHING, REALS, Interval, image
from cubridge.ir.nodes import NAMED_CONSTANTS, SIZES, Binary, Call, Expr, FloatLit, IntLit, Name, Unary

_NAMES: Final = {
    **dict.fromkeys(SIZES, AT_LEAST_ONE),
    **{name: Interval.exactly(NAMED_CONSTANTS[name]) for name in ("LOG2E", "LN2", "pi")},
}


def is_positive(expr: Expr) -> bool:
    """Is a host expression surely greater than 0."""
    return host_interval(expr).low > 0


def is_nonnegative(expr: Expr) -> bool:
    """Is an expression surely no less than 0."""
    return host_interval(expr).low >= 0


def host_interval(expr: Expr) -> Interval:
    """An interval of a host expression, as its form shows it."""
    match expr:
        case Name(name):
            return _NAMES.get(name, EVERYTHING)
        case IntLit(value) | FloatLit(value):
            return Interval.exactly(value)
        case Unary("-", operand):
            return -host_interval(operand)
        case Binary(op, left, right):
            return image(op, (host_interval(left), host_interval(right)), REALS)
        case Call(fn, args):
            return image(fn, map(host_interval, args), REALS)
        case _:
            return EVERYTHING
