"""Comparisons of any two terms, and casts to booleans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.numbers import (
    REAL_ZERO,
    RealNumber,
    ceiling_of_ratio,
    floor_of_ratio,
    integral,
    to_int,
    to_real,
)
from cubridge.frontend.reference.algebra.predicates import FALSE, at_least_zero, conjunction, is_zero, negation
from cubridge.frontend.reference.algebra.reduce import reduce
from cubridge.frontend.reference.algebra.selection import is_masking, push
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Reduce,
    Sort,
    Term,
    apply,
    assume,
    const,
    is_op,
    order,
)

_COMPARE: Final[dict[str, Callable[[RealNumber, RealNumber], bool]]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    "==": lambda x, y: x == y,
}
_MIRRORED: Final = {">": "<", ">=": "<="}


def compare(op: str, a: Term, b: Term) -> Term:
    """a op b for op of < <= == != > >=, on any sorts."""
    a, b = (to_int(x) if x.sort is Sort.BOOL else x for x in (a, b))
    pushed = push(lambda x, y: compare(op, x, y), a, b)
    if pushed is not None:
        return pushed
    if op in _MIRRORED:
        op, a, b = _MIRRORED[op], b, a
    if op == "!=":
        return negation(compare("==", a, b))
    whole_a, whole_b = integral(a), integral(b)
    if whole_a is None or whole_b is None:
        return _compare_reals(op, to_real(a), to_real(b))
    difference = integers.sub(whole_b, whole_a)
    match op:
        case "<=":
            return at_least_zero(difference)
        case "<":
            return at_least_zero(integers.sub(difference, integers.ONE))
        case _:
            return is_zero(difference)


def _compare_reals(op: str, a: Term, b: Term) -> Term:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(_COMPARE[op](a.value, b.value))
    if a is b and a.reads & {"q", "k", "v"}:
        assume("no value is NaN where a row sees a key")
        return const(op != "<")
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const) and math.isinf(x.value) and y.reads & {"q", "k", "v"}:
            return _compare_with_infinity(op, float(x.value), y, number_first=x is a)
    rounded = _compare_with_integer(op, a, b)
    if rounded is not None:
        return rounded
    if op == "==" and order(b) < order(a):
        a, b = b, a
    return apply(op, (a, b), Sort.BOOL)


def _compare_with_infinity(op: str, infinity: float, other: Term, number_first: bool) -> Term:
    """Computed values are finite: only the order of the two decides."""
    at_infinity = is_minus_infinity(other) if infinity < 0 else FALSE
    if op == "==":
        return at_infinity
    number_is_less = number_first == (infinity < 0)
    if op == "<" or infinity > 0:
        return conjunction(const(number_is_less), negation(at_infinity))
    return const(True) if number_is_less else at_infinity


def is_minus_infinity(x: Term) -> Term:
    """Where a value computed from q, k and v is -inf: a maximum over no visible key. All else is finite."""
    match x:
        case Reduce(kind="max") if is_op(x.body, "where") and is_masking(x.body.children()[2]):
            assume("values computed from q, k and v are finite")
            return negation(reduce("any", x.index, x.body.children()[0]))
        case Apply(op="max"):
            return conjunction(*map(is_minus_infinity, x.args))
        case _:
            assume("values computed from q, k and v are finite")
            return FALSE


def _compare_with_integer(op: str, a: Term, b: Term) -> Term | None:
    """n < p / m and the like as comparisons of integers."""
    if op == "==":
        return None
    ratio, negative = (b, False) if integral(a) is not None else (a, True) if integral(b) is not None else (None, False)
    if ratio is None:
        return None
    whole = integral(b if negative else a)
    assert whole is not None
    if not negative:  # n <= r  iff  n <= floor(r);  n < r  iff  n < ceil(r)
        bound = floor_of_ratio(ratio) if op == "<=" else ceiling_of_ratio(ratio)
        return None if bound is None else compare(op, whole, bound)
    bound = ceiling_of_ratio(ratio) if op == "<=" else floor_of_ratio(ratio)
    return None if bound is None else compare(op, bound, whole)


def to_bool(term: Term) -> Term:
    if term.sort is Sort.BOOL:
        return term
    return negation(compare("==", term, integers.ZERO if term.sort is Sort.INT else REAL_ZERO))


def cast(term: Term, sort: Sort) -> Term:
    match sort:
        case Sort.BOOL:
            return to_bool(term)
        case Sort.INT:
            return to_int(term)
        case Sort.REAL:
            return to_real(term)
