"""Three-valued evaluation of a predicate over a box of rows and keys: true everywhere, false everywhere, or unknown.

It takes any predicate. Sums are bounded as polynomials, so that `j - i` is as exact as its box; data that is not given is
unknown, and unknown is never an answer that lets a tile be skipped or left unmasked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from cubridge.ir.nodes import Attr, Binary, BoolLit, Call, Expr, FloatLit, Index, IntLit, Name, Unary
from cubridge.passes.exprs import MIRRORED
from cubridge.passes.poly import Poly, poly

if TYPE_CHECKING:
    from torch import Tensor


class Truth(Enum):
    NEVER = auto()
    UNKNOWN = auto()
    ALWAYS = auto()


@dataclass(frozen=True, slots=True)
class Interval:
    """All numbers from `low` to `high`, both included."""

    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Interval) -> Interval:
        corners = [_times(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)


EVERYTHING = Interval(-math.inf, math.inf)


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


@dataclass(frozen=True, slots=True)
class Box:
    """`names`: intervals of `i`, `j` and of everything else that has a value, by its expression. `tables`: captured tensors
    by name, where their content may be used."""

    names: Mapping[Expr, Interval]
    tables: Mapping[str, Tensor] = field(default_factory=dict)


def truth(predicate: Expr, box: Box) -> Truth:
    """Whether `predicate` holds over the box."""
    match predicate:
        case BoolLit(value):
            return Truth.ALWAYS if value else Truth.NEVER
        case Binary("&", left, right):
            return _and(truth(left, box), truth(right, box))
        case Binary("|", left, right):
            return _not(_and(_not(truth(left, box)), _not(truth(right, box))))
        case Unary("~", operand):
            return _not(truth(operand, box))
        case Call("where", (condition, then, otherwise)):
            chosen, a, b = truth(condition, box), truth(then, box), truth(otherwise, box)
            return {Truth.ALWAYS: a, Truth.NEVER: b}.get(chosen, a if a is b else Truth.UNKNOWN)
        case Binary(op, left, right) if op in MIRRORED:
            return _compare(op, _difference(left, right, box))
        case _:
            return _boolean(number(predicate, box))


def _difference(left: Expr, right: Expr, box: Box) -> Interval:
    return bounds(poly(left) - poly(right), box)


def _compare(op: str, d: Interval) -> Truth:
    match op:
        case "<":
            return _from(d.high < 0, d.low >= 0)
        case "<=":
            return _from(d.high <= 0, d.low > 0)
        case ">":
            return _from(d.low > 0, d.high <= 0)
        case ">=":
            return _from(d.low >= 0, d.high < 0)
        case "==":
            return _from(d.low == d.high == 0, d.low > 0 or d.high < 0)
        case _:
            return _not(_compare("==", d))


def _from(always: bool, never: bool) -> Truth:
    return Truth.ALWAYS if always else Truth.NEVER if never else Truth.UNKNOWN


def _boolean(d: Interval) -> Truth:
    return _from(d.low == d.high == 1, d.low == d.high == 0)


def _and(a: Truth, b: Truth) -> Truth:
    if Truth.NEVER in (a, b):
        return Truth.NEVER
    return Truth.ALWAYS if a is b is Truth.ALWAYS else Truth.UNKNOWN


def _not(a: Truth) -> Truth:
    return {Truth.ALWAYS: Truth.NEVER, Truth.NEVER: Truth.ALWAYS}.get(a, Truth.UNKNOWN)


def bounds(value: Poly, box: Box) -> Interval:
    """The interval of a polynomial: exact where each atom occurs once."""
    total = Interval(0, 0)
    for monomial, coefficient in value.terms:
        term = Interval(coefficient, coefficient)
        for atom in monomial:
            term = term * number(atom, box)
        total = total + term
    return total


def number(expr: Expr, box: Box) -> Interval:
    """The interval of a number."""
    if expr in box.names:
        return box.names[expr]
    match expr:
        case IntLit(value) | FloatLit(value) | BoolLit(value):
            return Interval(value, value)
        case Binary("+" | "-" | "*", _, _) | Unary("-", _):
            return bounds(poly(expr), box)
        case Binary("//" | "%" | "/" as op, left, right):
            return _divided(op, _whole(left, box), _whole(right, box))
        case Call("ceil_div", (left, right)):
            return -_divided("//", -_whole(left, box), _whole(right, box))
        case Call("minimum" | "maximum" as fn, (left, right)):
            a, b = _whole(left, box), _whole(right, box)
            pick = min if fn == "minimum" else max
            return Interval(pick(a.low, b.low), pick(a.high, b.high))
        case Call("abs", (operand,)):
            return _absolute(_whole(operand, box))
        case Call("where", (condition, then, otherwise)):
            return _choice(truth(condition, box), _whole(then, box), _whole(otherwise, box))
        case Call("f32" | "i64", (operand,)):
            return _whole(operand, box)
        case Index(Attr(Name("p"), name) | Name(name), indices) if name in box.tables:
            return _table(box.tables[name], [_whole(x, box) for x in indices])
        case _:
            return EVERYTHING


def _whole(expr: Expr, box: Box) -> Interval:
    return bounds(poly(expr), box)


def _divided(op: str, value: Interval, by: Interval) -> Interval:
    """`value op by`; bounded only for a positive divisor."""
    if by.low <= 0:
        return EVERYTHING
    if op == "%":
        return _remainder(value, by)
    corners = [_quotient(op, a, b) for a in (value.low, value.high) for b in (by.low, by.high)]
    return Interval(min(corners), max(corners))


def _quotient(op: str, a: float, b: float) -> float:
    if math.isinf(b):
        return 0 if a >= 0 else -1 if op == "//" else 0
    if math.isinf(a):
        return a
    return a // b if op == "//" else a / b


def _remainder(value: Interval, by: Interval) -> Interval:
    n = by.low
    if n == by.high and not math.isinf(value.low + value.high) and value.low // n == value.high // n:
        return Interval(value.low % n, value.high % n)
    return Interval(0, by.high - 1)


def _absolute(value: Interval) -> Interval:
    top = max(abs(value.low), abs(value.high))
    return Interval(0 if value.low <= 0 <= value.high else min(abs(value.low), abs(value.high)), top)


def _choice(chosen: Truth, a: Interval, b: Interval) -> Interval:
    if chosen is Truth.UNKNOWN:
        return Interval(min(a.low, b.low), max(a.high, b.high))
    return a if chosen is Truth.ALWAYS else b


def _table(table: Tensor, indices: list[Interval]) -> Interval:
    """The least and largest element of the part that the indices may read."""
    if any(math.isinf(x.low) or math.isinf(x.high) for x in indices):
        return EVERYTHING
    part = table[tuple(slice(max(0, int(x.low)), int(x.high) + 1) for x in indices)]
    return Interval(float(part.min()), float(part.max())) if part.numel() else EVERYTHING
