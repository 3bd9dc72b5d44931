"""Constructors of expressions that fold what is plain: constants, neutral elements, repeated parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cubridge.ir.nodes import COMPARISONS, NEGATED, Binary, BoolLit, Call, Expr, FloatLit, IntLit, Name, Unary

TRUE: Final = BoolLit(True)
FALSE: Final = BoolLit(False)
INF: Final = Name("inf")
MINUS_INF: Final = Unary("-", INF)
MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def is_number(expr: Expr, value: float) -> bool:
    return isinstance(expr, IntLit | FloatLit) and expr.value == value


def number(expr: Expr) -> int | float | None:
    """The value of a literal, None for any other expression."""
    return expr.value if isinstance(expr, IntLit | FloatLit) else None


def both(*parts: Expr) -> Expr:
    """The conjunction."""
    return _junction("&", TRUE, FALSE, parts)


def either(*parts: Expr) -> Expr:
    """The disjunction."""
    return _junction("|", FALSE, TRUE, parts)


def _junction(op: str, neutral: Expr, absorbing: Expr, parts: Iterable[Expr]) -> Expr:
    distinct = [p for p in dict.fromkeys(parts) if p != neutral]
    if absorbing in distinct:
        return absorbing
    result: Expr | None = None
    for part in distinct:
        result = part if result is None else Binary(op, result, part)
    return neutral if result is None else result


def operands(op: str, expr: Expr) -> Iterator[Expr]:
    """The operands of a chain of one operator, in the order of the text."""
    if isinstance(expr, Binary) and expr.op == op:
        yield from operands(op, expr.left)
        yield from operands(op, expr.right)
    else:
        yield expr


def negated(expr: Expr) -> Expr:
    """The logical negation, pushed down to comparisons (no NaN among their operands: integers and masks)."""
    match expr:
        case BoolLit(value):
            return BoolLit(not value)
        case Unary("~", operand):
            return operand
        case Binary("&", left, right):
            return either(negated(left), negated(right))
        case Binary("|", left, right):
            return both(negated(left), negated(right))
        case Binary(op, left, right) if op in COMPARISONS:
            return Binary(NEGATED[op], left, right)
        case _:
            return Unary("~", expr)


def where(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    if condition == TRUE or then == otherwise:
        return then
    if condition == FALSE:
        return otherwise
    return Call("where", (condition, then, otherwise))


def operation(expr: Expr) -> tuple[str, tuple[Expr, ...]] | None:
    """The outermost operator or function, and what it is applied to."""
    match expr:
        case Unary(op, operand):
            return op, (operand,)
        case Binary(op, left, right):
            return op, (left, right)
        case Call(fn, args):
            return fn, args
        case _:
            return None


def product(parts: Iterable[Expr]) -> Expr | None:
    """The product from left to right; None of nothing."""
    result: Expr | None = None
    for part in parts:
        result = part if result is None else Binary("*", result, part)
    return result


Addend = tuple[int, Expr]
"""A part of a sum, with its sign, 1 or -1."""


def addends(expr: Expr, sign: int = 1) -> list[Addend]:
    """The parts of a chain of sums and differences."""
    match expr:
        case Binary("+" | "-" as op, left, right):
            return [*addends(left, sign), *addends(right, sign if op == "+" else -sign)]
        case Unary("-", operand):
            return addends(operand, -sign)
        case _:
            return [(sign, expr)]


def added(parts: Iterable[Addend]) -> Expr:
    """The sum of parts, those with a plus first."""
    (sign, result), *rest = sorted(parts, key=lambda p: p[0] < 0)
    if sign < 0:
        result = Unary("-", result)
    for sign, part in rest:
        result = Binary("+" if sign > 0 else "-", result, part)
    return result
