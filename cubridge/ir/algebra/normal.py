"""Integer expressions as polynomials, and back: one form for equal sums, whatever their spelling.

An atom is a name, a field, an element of a tensor, or a call, division or remainder over polynomials of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import repeat
from typing import Final, assert_never

from cubridge.ir.algebra.exprs import MIRRORED, where
from cubridge.ir.algebra.poly import Monomial, Poly
from cubridge.ir.nodes import Attr, Binary, BoolLit, Call, Expr, FloatLit, Index, IntLit, Name, Record, Unary

_MAX_TERMS: Final = 1000
"""A product that would have more before equal ones are joined is an atom."""


# ---- expression -> polynomial ----------------------------------------------------------------------------------------


def poly(expr: Expr) -> Poly:
    """The polynomial of an integer expression. What has no polynomial form (a load, a cast, a float) is an atom."""
    match expr:
        case IntLit(value):
            return Poly.constant(value)
        case Unary("-", operand):
            return -poly(operand)
        case Binary("+", left, right):
            return poly(left) + poly(right)
        case Binary("-", left, right):
            return poly(left) - poly(right)
        case Binary("*", left, right):
            return _product(poly(left), poly(right))
        case Binary("//", left, right) | Call("floor_div", (left, right)):
            return floor_div(poly(left), poly(right))
        case Binary("%", left, right) | Call("floor_mod", (left, right)):
            return floor_mod(poly(left), poly(right))
        case Binary("**", base, IntLit(power)) if 1 <= power <= 4:
            return reduce(_product, repeat(poly(base), power))
        case Call("minimum" | "maximum" as fn, (left, right)):
            return extremum(fn, poly(left), poly(right))
        case Call("abs", (operand,)):
            return absolute(poly(operand))
        case Call("where", (condition, then, otherwise)):
            return _choice(normal_predicate(condition), poly(then), poly(otherwise))
        case Call(fn, args):
            return Poly.atom(Call(fn, tuple(normal(a) for a in args)))
        case Index(base, indices):
            return Poly.atom(Index(base, tuple(normal(x) for x in indices)))
        case BoolLit() | FloatLit() | Name() | Attr() | Unary() | Binary() | Record():
            return Poly.atom(expr)
        case _:
            assert_never(expr)  # pyright: ignore[reportArgumentType]


def normal(expr: Expr) -> Expr:
    """The one spelling of an integer expression."""
    return to_expr(poly(expr))


def normal_predicate(expr: Expr) -> Expr:
    """A predicate with its integer operands in their one spelling."""
    match expr:
        case Binary("&" | "|" | "^" as op, left, right):
            return Binary(op, normal_predicate(left), normal_predicate(right))
        case Unary("~", operand):
            return Unary("~", normal_predicate(operand))
        case Binary(op, left, right) if op in MIRRORED:
            return Binary(op, normal(left), normal(right))
        case _:
            return expr


def _product(left: Poly, right: Poly) -> Poly:
    if len(left.terms) * len(right.terms) > _MAX_TERMS:
        return Poly.atom(Binary("*", to_expr(left), to_expr(right)))
    return left * right


def floor_div(value: Poly, by: Poly) -> Poly:
    """`value // by`. Terms that `by` divides leave the division: (n * q + r) // n = q + r // n for every n but 0."""
    quotient, rest = value.divided(by)
    return quotient + _divided("//", rest, by)


def floor_mod(value: Poly, by: Poly) -> Poly:
    """`value % by`, without the terms that `by` divides."""
    return _divided("%", value.divided(by)[1], by)


def _divided(op: str, rest: Poly, by: Poly) -> Poly:
    number, divisor = rest.as_int(), by.as_int()
    if number == 0:
        return Poly(())
    if number is not None and divisor:
        return Poly.constant(number // divisor if op == "//" else number % divisor)
    return Poly.atom(Binary(op, to_expr(rest), to_expr(by)))


_FOLD: dict[str, Callable[[int, int], int]] = {"minimum": min, "maximum": max}


def extremum(fn: str, left: Poly, right: Poly) -> Poly:
    """`minimum` or `maximum` of two, decided where they differ by a number."""
    difference = (left - right).as_int()
    if difference is not None:
        return left if _FOLD[fn](difference, 0) == difference else right
    return Poly.atom(Call(fn, (to_expr(left), to_expr(right))))


def absolute(value: Poly) -> Poly:
    number = value.as_int()
    if number is not None:
        return Poly.constant(abs(number))
    if value.terms[0][1] < 0:
        value = -value
    return Poly.atom(Call("abs", (to_expr(value),)))


def _choice(condition: Expr, then: Poly, otherwise: Poly) -> Poly:
    chosen = where(condition, to_expr(then), to_expr(otherwise))
    return Poly.atom(chosen) if isinstance(chosen, Call) and chosen.fn == "where" else poly(chosen)


# ---- polynomial -> expression ----------------------------------------------------------------------------------------


def to_expr(value: Poly) -> Expr:
    """The expression of a polynomial: positive terms first, its constant last."""
    terms = sorted((t for t in value.terms if t[0]), key=lambda t: t[1] < 0)
    result: Expr | None = None
    for monomial, coefficient in terms:
        result = _joined(result, coefficient < 0, _term(monomial, abs(coefficient)))
    constant = value.coefficient(())
    if constant or result is None:
        result = IntLit(constant) if result is None else _joined(result, constant < 0, IntLit(abs(constant)))
    return result


def _joined(before: Expr | None, negative: bool, term: Expr) -> Expr:
    if before is None:
        return _negative(term) if negative else term
    return Binary("-" if negative else "+", before, term)


def _negative(term: Expr) -> Expr:
    match term:
        case Binary("*", IntLit(value), rest):
            return Binary("*", IntLit(-value), rest)
        case _:
            return Unary("-", term)


def _term(monomial: Monomial, coefficient: int) -> Expr:
    result: Expr | None = IntLit(coefficient) if coefficient != 1 else None
    for atom in monomial:
        result = atom if result is None else Binary("*", result, atom)
    assert result is not None
    return result


_TIGHTER: Final = {("<", -1): "<=", ("<=", 1): "<", (">", 1): ">=", (">=", -1): ">"}
"""The comparison that a constant term turns another into: `d - 1 < 0` is `d <= 0`."""


def compared(op: str, difference: Poly) -> Expr:
    """`difference op 0`, with the positive terms on the left and the negative ones on the right."""
    number = difference.as_int()
    if number is not None:
        return BoolLit({"<": number < 0, "<=": number <= 0, ">": number > 0, ">=": number >= 0}[op])
    constant = difference.coefficient(())
    if (op, constant) in _TIGHTER:
        return compared(_TIGHTER[op, constant], difference.without(()))
    left = Poly(tuple((m, c) for m, c in difference.terms if m and c > 0))
    right = Poly(tuple((m, -c) for m, c in difference.terms if m and c < 0))
    if left.terms or constant < 0:
        return Binary(op, to_expr(left), to_expr(right - constant))
    return Binary(op, to_expr(left + constant), to_expr(right))
