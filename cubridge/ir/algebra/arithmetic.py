"""Sums, products and selections that fold what is plain. A factor of 0 or 1 that is chosen selects: what it drops is not multiplied
by 0, so that an infinity beside it does no harm."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from cubridge.ir.algebra.exprs import is_number, number, where
from cubridge.ir.nodes import Binary, Call, Expr, FloatLit, IntLit, Node, Unary
from cubridge.ir.walk import map_children

ZERO: Final = IntLit(0)
ONE: Final = IntLit(1)
_EXACT: Final = 2**53


def literal(value: float) -> Expr:
    """A number as it is written: whole ones without a point."""
    whole = value == int(value) and abs(value) < _EXACT
    return IntLit(int(value)) if whole else FloatLit(float(value))


def plus(left: Expr, right: Expr) -> Expr:
    a, b = number(left), number(right)
    if a is not None and b is not None:
        return literal(a + b)
    if a == 0 or b == 0:
        return right if a == 0 else left
    match left, right:
        case Call("where", (c, p, q)), Call("where", (d, r, s)) if c == d:
            return where(c, plus(p, r), plus(q, s))
        case _, Unary("-", operand):
            return minus(left, operand)
        case Unary("-", operand), _:
            return minus(right, operand)
        case _:
            return times(literal(2), left) if left == right else Binary("+", left, right)


def minus(left: Expr, right: Expr) -> Expr:
    a, b = number(left), number(right)
    if a is not None and b is not None:
        return literal(a - b)
    if b == 0:
        return left
    if a == 0:
        return negative(right)
    return plus(left, right.operand) if isinstance(right, Unary) and right.op == "-" else Binary("-", left, right)


def negative(expr: Expr) -> Expr:
    value = number(expr)
    if value is not None:
        return literal(-value)
    match expr:
        case Unary("-", operand):
            return operand
        case Binary("-", left, right):
            return Binary("-", right, left)
        case Binary("*", left, right) if (value := number(left)) is not None:
            return times(literal(-value), right)
        case _:
            return Unary("-", expr)


def times(left: Expr, right: Expr) -> Expr:
    a, b = number(left), number(right)
    if a is not None and b is not None:
        return literal(a * b)
    if a == 0 or b == 0:
        return ZERO
    for value, other in ((a, right), (b, left)):
        if value is not None and abs(value) == 1:
            return other if value == 1 else negative(other)
    for choice, other in ((left, right), (right, left)):
        if _chooses(choice):
            return _selected(choice, other)
    match left, right:
        case Unary("-", operand), _:
            return negative(times(operand, right))
        case _, Unary("-", operand):
            return negative(times(left, operand))
        case Binary("/", one, divisor), _ if is_number(one, 1):
            return over(right, divisor)
        case _, Binary("/", one, divisor) if is_number(one, 1):
            return over(left, divisor)
        case _, IntLit() | FloatLit():
            return times(right, left)
        case IntLit() | FloatLit(), Binary("*", inner, rest) if number(inner) is not None:
            return times(times(left, inner), rest)
        case _:
            return Binary("*", left, right)


def over(left: Expr, right: Expr) -> Expr:
    a, b = number(left), number(right)
    if a is not None and b is not None and b != 0 and Fraction(a / b) * Fraction(b) == Fraction(a):
        return literal(a / b)
    if a == 0 or b == 1:
        return left
    match left, right:
        case Unary("-", operand), _:
            return negative(over(operand, right))
        case Call("exp", (power,)), Binary("+", one, same) if same == left and is_number(one, 1):
            return logistic(power)
        case Call("exp", (power,)), Binary("+", same, one) if same == left and is_number(one, 1):
            return logistic(power)
        case _:
            return _selected(left, over(ONE, right)) if _chooses(left) else Binary("/", left, right)


def power(base: Expr, exponent: Expr) -> Expr:
    if is_number(exponent, 0):
        return ONE
    return base if is_number(exponent, 1) else Binary("**", base, exponent)


def logistic(expr: Expr) -> Expr:
    """exp(u) / (1 + exp(u)), where exp(u) may be infinite."""
    return Binary("/", ONE, Binary("+", ONE, Call("exp", (negative(expr),))))


def folded(expr: Expr) -> Expr:
    """The expression built again from its parts."""

    def change(node: Node) -> Node:
        node = map_children(node, change)
        match node:
            case Unary("-", operand):
                return negative(operand)
            case Binary("+", left, right):
                return plus(left, right)
            case Binary("-", left, right):
                return minus(left, right)
            case Binary("*", left, right):
                return times(left, right)
            case Binary("/", left, right):
                return over(left, right)
            case Call("where", (condition, then, otherwise)):
                return where(condition, then, otherwise)
            case Call("log", (one,)) if is_number(one, 1):
                return ZERO
            case _:
                return node

    result = change(expr)
    assert isinstance(result, Expr)
    return result


def _chooses(expr: Expr) -> bool:
    """Is it a choice of 0 and other numbers."""
    return isinstance(expr, Call) and expr.fn == "where" and all(_is_choice(x) for x in expr.args[1:])


def _is_choice(expr: Expr) -> bool:
    return number(expr) is not None or _chooses(expr)


def _selected(choice: Expr, value: Expr) -> Expr:
    if isinstance(choice, Call):
        condition, then, otherwise = choice.args
        return where(condition, _selected(then, value), _selected(otherwise, value))
    return times(choice, value)
