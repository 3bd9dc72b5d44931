"""Expressions differentiated: each function by its row of `ir/functions.py`, at edges as PyTorch does.

Parts of the expression stand in its derivative as they are (exp(x - m) in that of exp(x - m)), so that a value that is known can be
put in their place."""

from __future__ import annotations

from functools import cache
from typing import Final

from cubridge.ir.algebra.arithmetic import ONE, ZERO, folded, literal, minus, negative, over, plus, power, times
from cubridge.ir.diagnostics import Diagnostic, Refused
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import COMPARISONS, Binary, Call, Expr, Name, Unary
from cubridge.ir.parser import parse_expr
from cubridge.ir.walk import free_names, substitute

HALF: Final = 0.5
"""What `torch.maximum` gives each of two equal arguments."""


def derivative(expr: Expr, name: str, tie: float = HALF) -> Expr:
    """d expr / d name. `tie`: what a maximum or minimum gives to its one varying argument where both are equal.
    Errors: CU530 for what has no derivative."""
    if name not in free_names(expr):
        return ZERO

    def by(part: Expr) -> Expr:
        return derivative(part, name, tie)

    match expr:
        case Name():
            return ONE
        case Unary("-", operand):
            return negative(by(operand))
        case Binary("+", left, right):
            return plus(by(left), by(right))
        case Binary("-", left, right):
            return minus(by(left), by(right))
        case Binary("*", left, right):
            return plus(times(by(left), right), times(left, by(right)))
        case Binary("/", left, right):
            return minus(over(by(left), right), times(expr, over(by(right), right)))
        case Binary("**", base, exponent) if name not in free_names(exponent):
            return times(times(exponent, power(base, _less_one(exponent))), by(base))
        case Binary("**", base, exponent) if name not in free_names(base):
            return times(times(expr, Call("log", (base,))), by(exponent))
        case Binary("%", left, right) if name not in free_names(right):
            return by(left)
        case Binary(op) if op in (*COMPARISONS, "&", "|", "^"):
            return ZERO
        case Unary("~"):
            return ZERO
        case Call(fn, args) if FUNCTIONS[fn].derivative:
            alone = sum(name in free_names(a) for a in args) == 1
            partials = _partials(fn, args, expr, tie if alone else HALF)
            total = ZERO
            for partial, argument in zip(partials, args, strict=True):
                total = plus(total, times(partial, by(argument)))
            return total
        case Call(fn):
            return _refuse(f"`{fn}` has no derivative", expr)
        case Binary(op):
            return _refuse(f"`{op}` of scores has no derivative", expr)
        case _:
            return _refuse("this has no derivative", expr)


def _partials(fn: str, args: tuple[Expr, ...], result: Expr, tie: float) -> tuple[Expr, ...]:
    values = {**dict(zip("abc", args, strict=False)), "y": result, "tie": literal(tie)}
    return tuple(folded(substitute(d, values)) for d in _derivatives(fn))


@cache
def _derivatives(fn: str) -> tuple[Expr, ...]:
    return tuple(parse_expr(text, f"derivative of {fn}") for text in FUNCTIONS[fn].derivative)


def _less_one(exponent: Expr) -> Expr:
    return minus(exponent, ONE)


def _refuse(message: str, at: Expr) -> Expr:
    raise Refused(
        Diagnostic("CU530", message, at.span, help="the forward kernel has no need of one; its gradient does")
    )
