"""Real numbers, casts between sorts, and the view of a real as a product."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import nonneg
from cubridge.frontend.reference.algebra.polynomials import product
from cubridge.frontend.reference.algebra.selection import where
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Number,
    Reduce,
    Sort,
    Term,
    apply,
    arena,
    const,
    is_const,
)

RealNumber = float | Fraction

REAL_ZERO: Final = const(0.0)
REAL_ONE: Final = const(1.0)
Factors = tuple[tuple[Term, Fraction], ...]
"""A product without its number: bases with exponents, in canonical order."""


def exact(value: Number) -> Fraction:
    """Rounded to a float where the fraction has grown beyond use."""
    fraction = Fraction(value)
    return Fraction(float(fraction)) if fraction.denominator.bit_length() > 256 else fraction


def number(value: RealNumber) -> Const:
    return const(value if isinstance(value, Fraction) else float(value))


def is_number(term: Term) -> bool:
    return isinstance(term, Const) and term.sort is Sort.REAL


def to_real(term: Term) -> Term:
    match term.sort:
        case Sort.REAL:
            return term
        case Sort.BOOL:
            return where(term, REAL_ONE, REAL_ZERO)
        case Sort.INT:
            if isinstance(term, Const):
                return number(float(term.value))
            if isinstance(term, Apply) and term.op == "where":
                return where(term.args[0], to_real(term.args[1]), to_real(term.args[2]))
            if isinstance(term, Apply) and term.op == "trunc" and integral(term.args[0]) is not None:
                return term.args[0]
            return apply("real", (term,), Sort.REAL)


def to_int(term: Term) -> Term:
    """As a cast does: towards zero."""
    match term.sort:
        case Sort.INT:
            return term
        case Sort.BOOL:
            return where(term, integers.ONE, integers.ZERO)
        case Sort.REAL:
            if isinstance(term, Const):
                return const(int(term.value))
            if isinstance(term, Apply) and term.op == "where":
                return where(term.args[0], to_int(term.args[1]), to_int(term.args[2]))
            whole = integral(term)
            if whole is not None:
                return whole
            floor = floor_of_ratio(term)
            if floor is not None and nonneg(floor):
                return floor
            return apply("trunc", (term,), Sort.INT)


def integral(term: Term) -> Term | None:
    """The integer that a real is, where its form shows one."""
    if term.sort is Sort.INT:
        return term
    if isinstance(term, Const):
        value = term.value
        return const(int(value)) if math.isfinite(value) and value == int(value) else None
    if isinstance(term, Reduce) and term.kind == "sum" and integral(term.body) is not None:
        return apply("trunc", (term,), Sort.INT)
    if term in arena().whole_symbols:
        return apply("trunc", (term,), Sort.INT)
    if isinstance(term, Apply):
        if term.op == "real":
            return term.args[0]
        if term.op in ("add", "mul"):
            parts = [integral(a) for a in term.args]
            whole = [p for p in parts if p is not None]
            if len(whole) == len(parts):
                return integers.add(*whole) if term.op == "add" else product(tuple(whole))
        if term.op in ("floor", "ceil", "round", "truncate"):
            return apply("trunc", (term,), Sort.INT)
    return None


def floor_of_ratio(term: Term) -> Term | None:
    """floor(p / n) as an integer, for an integer p and a positive integer number or size n."""
    return floor_of_signed_ratio(*split_product(term))


def floor_of_signed_ratio(coefficient: Fraction, factors: Factors) -> Term | None:
    denominator: Term = const(coefficient.denominator)
    top: Term = const(coefficient.numerator)
    if coefficient.denominator > 1 << 20:
        return None
    for base, exponent in factors:
        whole = integral(base)
        if whole is None or exponent not in (1, -1):
            return None
        if exponent == 1:
            top = integers.mul(top, whole)
        else:
            denominator = integers.mul(denominator, whole)
    return integers.floordiv(top, denominator)


def ceiling_of_ratio(term: Term) -> Term | None:
    """ceil(p / n) as an integer."""
    coefficient, factors = split_product(term)
    floor = floor_of_signed_ratio(-coefficient, factors)
    return None if floor is None else integers.neg(floor)


def split_product(term: Term) -> tuple[Fraction, Factors]:
    """(number, factors) of a finite real."""
    if isinstance(term, Const):
        return Fraction(term.value), ()
    if isinstance(term, Apply):
        if term.op == "mul":
            head = term.args[0]
            rest = term.args[1:] if isinstance(head, Const) else term.args
            return (Fraction(head.value) if isinstance(head, Const) else Fraction(1)), tuple(_factor(a) for a in rest)
        if is_unit_step(term, None):
            condition, height, _ = term.args
            assert isinstance(height, Const)
            return Fraction(height.value), ((where(condition, REAL_ONE, REAL_ZERO), Fraction(1)),)
        return Fraction(1), (_factor(term),)
    return Fraction(1), ((term, Fraction(1)),)


def is_unit_step(term: Term, height: float | None = 1.0) -> bool:
    """where(c, height, 0), for any finite height where none is given."""
    if not (isinstance(term, Apply) and term.op == "where" and is_const(term.args[2], 0)):
        return False
    top = term.args[1]
    return is_const(top, height) if height is not None else isinstance(top, Const) and math.isfinite(top.value)


def _factor(term: Term) -> tuple[Term, Fraction]:
    if isinstance(term, Apply) and term.op == "pow" and isinstance(term.args[1], Const):
        return term.args[0], Fraction(term.args[1].value)
    return term, Fraction(1)
