"""Signs that the form of an expression shows."""

from __future__ import annotations

from typing import Final

from cubridge.ir.nodes import SIZES, Binary, Call, Expr, FloatLit, IntLit, Name

_POSITIVE: Final = frozenset({*SIZES, "LOG2E", "LN2", "pi"})


def is_positive(expr: Expr) -> bool:
    """Is a host expression surely greater than 0."""
    match expr:
        case Name(name):
            return name in _POSITIVE
        case IntLit(value) | FloatLit(value):
            return value > 0
        case Binary("+" | "*" | "/", left, right):
            return is_positive(left) and is_positive(right)
        case Binary("**", base, _) | Call("sqrt" | "rsqrt", (base,)) | Call("f32", (base,)):
            return is_positive(base)
        case Call("exp" | "exp2", _):
            return True
        case Call("minimum", (left, right)):
            return is_positive(left) and is_positive(right)
        case Call("maximum", (left, right)):
            return is_positive(left) or is_positive(right)
        case _:
            return False


def is_nonnegative(expr: Expr) -> bool:
    """Is an expression surely no less than 0."""
    match expr:
        case Call("abs", _):
            return True
        case IntLit(value) | FloatLit(value):
            return value >= 0
        case Binary("+" | "*" | "/", left, right):
            return is_nonnegative(left) and is_nonnegative(right)
        case Call("f32" | "sqrt", (operand,)):
            return is_nonnegative(operand)
        case Call("maximum", (left, right)):
            return is_nonnegative(left) or is_nonnegative(right)
        case _:
            return is_positive(expr)
