"""Three-valued evaluation of a predicate over a box of rows and keys: true everywhere, false everywhere, or unknown.

It takes any predicate. Sums are bounded as polynomials, so that `j - i` is as exact as its box; data that is not given is
unknown, and unknown is never an answer that lets a tile be skipped or left unmasked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from cubridge.ir.algebra.exprs import MIRRORED
from cubridge.ir.algebra.interval import EVERYTHING, NUMBERS, Interval, bounds, image_of
from cubridge.ir.algebra.normal import poly
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.nodes import Attr, Binary, BoolLit, Call, Expr, Index, Name, Unary

if TYPE_CHECKING:
    from torch import Tensor


class Truth(Enum):
    NEVER = auto()
    UNKNOWN = auto()
    ALWAYS = auto()


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
            return _compare(op, _sum(poly(left) - poly(right), box))
        case _:
            return _boolean(number(predicate, box))


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


def number(expr: Expr, box: Box) -> Interval:
    """The interval of a number."""
    if expr in box.names:
        return box.names[expr]

    def inner(x: Expr) -> Interval:
        return _sum(poly(x), box)

    match expr:
        case Call("where", (condition, then, otherwise)):
            return _choice(truth(condition, box), inner(then), inner(otherwise))
        case Index(Attr(Name("p"), name) | Name(name), indices) if name in box.tables:
            return _table(box.tables[name], [inner(x) for x in indices])
        case _:
            return image_of(expr, inner, NUMBERS)


def _sum(value: Poly, box: Box) -> Interval:
    return bounds(value, lambda atom: number(atom, box))


def _choice(chosen: Truth, a: Interval, b: Interval) -> Interval:
    if chosen is Truth.UNKNOWN:
        return a.hull(b)
    return a if chosen is Truth.ALWAYS else b


def _table(table: Tensor, indices: list[Interval]) -> Interval:
    """The least and largest element of the part that the indices may read."""
    if not all(x.is_bounded for x in indices):
        return EVERYTHING
    part = table[tuple(slice(max(0, int(x.low)), int(x.high) + 1) for x in indices)]
    return Interval(float(part.min()), float(part.max())) if part.numel() else EVERYTHING
