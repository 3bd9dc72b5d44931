"""The one table from operation to constructor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from cubridge.frontend.reference.algebra import functions, integers, predicates, reals
from cubridge.frontend.reference.algebra.bounds import nonneg
from cubridge.frontend.reference.algebra.comparisons import compare
from cubridge.frontend.reference.algebra.constructors import CONSTRUCTORS, REDUCE
from cubridge.frontend.reference.algebra.numbers import to_int, to_real
from cubridge.frontend.reference.algebra.reduce import reduce
from cubridge.frontend.reference.algebra.selection import push, where
from cubridge.frontend.reference.algebra.terms import Const, Sort, Term, apply, const, is_const


def bitwise_and(a: Term, b: Term) -> Term:
    pushed = push(bitwise_and, a, b)
    if pushed is not None:
        return pushed
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) & int(b.value))
    for x, y in ((a, b), (b, a)):
        if is_const(x, 0):
            return x
        if is_const(x, 1) and nonneg(y) and nonneg(integers.sub(integers.ONE, y)):
            return y
        bits = _neighbouring_bits(int(x.value)) if isinstance(x, Const) else None
        if bits is not None:
            return _with_bits(y, *bits)
    return apply("&", (a, b), Sort.INT)


def _neighbouring_bits(mask: int) -> tuple[int, int | None] | None:
    """The weight of the lowest bit of a mask without gaps, and the number that its bits take up; None for all bits above."""
    lowest = mask & -mask
    if mask < 0:
        return (lowest, None) if mask == -lowest else None
    count = mask // lowest + 1
    return (lowest, count) if count & (count - 1) == 0 else None


def _with_bits(a: Term, lowest: int, count: int | None) -> Term:
    """Some neighbouring bits of an integer: of one below 0 too, since both divisions floor."""
    above = integers.floordiv(a, const(lowest))
    return integers.mul(const(lowest), above if count is None else integers.mod(above, const(count)))


def integer_floordiv(a: Term, n: Term) -> Term:
    pushed = push(integer_floordiv, a, n)
    return pushed if pushed is not None else integers.floordiv(a, n)


def _fold(function: Callable[[Term, Term], Term]) -> Callable[..., Term]:
    return lambda *args: functools.reduce(function, args)


def _unary(op: str) -> Callable[[Term], Term]:
    return lambda x: functions.unary(op, x)


def _compare(op: str) -> Callable[[Term, Term], Term]:
    return lambda a, b: compare(op, a, b)


def _power(base: Term, exponent: Term) -> Term:
    assert isinstance(exponent, Const)
    return reals.power(base, Fraction(exponent.value))


_TABLE: Final[dict[str, Callable[..., Term]]] = {
    "//": integer_floordiv,
    "imin": _fold(functions.minimum),
    "imax": _fold(functions.maximum),
    "iabs": integers.absolute,
    "&": bitwise_and,
    "trunc": to_int,
    "real": to_real,
    "where": where,
    ">=0": predicates.at_least_zero,
    "==0": predicates.is_zero,
    "and": predicates.conjunction,
    "or": predicates.disjunction,
    "not": predicates.negation,
    "add": reals.add,
    "mul": reals.mul,
    "pow": _power,
    "power": reals.general_power,
    "exp": reals.exp,
    "log": reals.log,
    "max": _fold(functions.maximum),
    "min": _fold(functions.minimum),
    **{op: _unary(op) for op in functions.UNARY},
    **{op: _compare(op) for op in ("<", "<=", "==")},
    REDUCE: reduce,
}
CONSTRUCTORS.update(_TABLE)
