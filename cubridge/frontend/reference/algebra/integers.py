"""Integers as polynomials over atoms: indices, sizes, floor divisions, minima, maxima, absolute values, loads.

`a % n` is never an atom but `a - n * (a // n)`, so index arithmetic that splits and merges cancels by itself.
Every simplification rests on `bounds.nonneg`.
"""

from __future__ import annotations

from cubridge.frontend.reference.algebra.bounds import nonneg, positive
from cubridge.frontend.reference.algebra.polynomials import (
    MINUS_ONE,
    ONE,
    ZERO,
    add,
    divide,
    from_terms,
    leading_coefficient,
    mul,
    neg,
    sub,
    terms_of,
)
from cubridge.frontend.reference.algebra.terms import Apply, Const, Sort, Term, apply, arena, const, is_op, order

__all__ = ["MINUS_ONE", "ONE", "ZERO", "absolute", "add", "floordiv", "maximum", "minimum", "mod", "mul", "neg", "sub"]


def floordiv(a: Term, n: Term) -> Term:
    """a // n. Multiples of n leave; what is provably in [0, n) vanishes; factors of n are tried one by one."""
    if isinstance(n, Const):
        if n.value == 1:
            return a
        if int(n.value) < 0:
            return floordiv(neg(a), neg(n))
        if isinstance(a, Const) and n.value:
            return const(int(a.value) // int(n.value))
    if not positive(n):  # nothing is known of n: the division stays as written
        arena().divisors.setdefault(n, arena().here)
        return apply("//", (a, n), Sort.INT)
    if isinstance(a, Apply) and a.op == "//" and positive(a.args[1]):
        return floordiv(a.args[0], mul(a.args[1], n))
    whole, rest = divide(a, n)
    if nonneg(rest) and nonneg(sub(sub(n, ONE), rest)):
        return whole
    if nonneg(sub(MINUS_ONE, rest)) and nonneg(add(rest, n)):
        return sub(whole, ONE)
    by_factor = _by_one_factor(rest, n)
    if by_factor is not None:
        return add(whole, by_factor)
    if isinstance(n, Const):  # whole multiples of n in the constant
        constant = terms_of(rest).get((), 0)
        times = constant // int(n.value)
        whole, rest = add(whole, const(times)), sub(rest, const(times * int(n.value)))
    return whole if rest is ZERO else add(whole, apply("//", (rest, n), Sort.INT))


def mod(a: Term, n: Term) -> Term:
    return sub(a, mul(n, floordiv(a, n)))


def _by_one_factor(a: Term, n: Term) -> Term | None:
    """(c x + r) // (c m) = x // m for r in [0, c), for a factor c of n that leaves nothing over."""
    divisor = terms_of(n)
    if len(divisor) != 1:
        return None
    ((by, scale),) = divisor.items()
    if len(by) + (scale != 1) < 2:
        return None
    factors: list[Term] = list(dict.fromkeys(by)) + ([const(scale)] if scale != 1 else [])
    for factor in factors:
        if not positive(factor):
            continue
        inner = floordiv(a, factor)
        if any(
            is_op(atom, "//") and isinstance(atom, Apply) and atom.args[1] is factor
            for m in terms_of(inner)
            for atom in m
        ):
            continue
        left = list(by)
        if factor in left:
            left.remove(factor)
        remaining = from_terms({tuple(left): 1 if isinstance(factor, Const) else scale})
        return floordiv(inner, remaining)
    return None


def minimum(a: Term, b: Term) -> Term:
    if nonneg(sub(b, a)):
        return a
    if nonneg(sub(a, b)):
        return b
    return apply("imin", _sorted_operands("imin", a, b), Sort.INT)


def maximum(a: Term, b: Term) -> Term:
    if nonneg(sub(a, b)):
        return a
    if nonneg(sub(b, a)):
        return b
    return apply("imax", _sorted_operands("imax", a, b), Sort.INT)


def _sorted_operands(op: str, a: Term, b: Term) -> tuple[Term, ...]:
    flat = [x for side in (a, b) for x in (side.args if isinstance(side, Apply) and side.op == op else (side,))]
    return tuple(sorted(dict.fromkeys(flat), key=order))


def absolute(a: Term) -> Term:
    if nonneg(a):
        return a
    if nonneg(neg(a)):
        return neg(a)
    return apply("iabs", (a if leading_coefficient(a) > 0 else neg(a),), Sort.INT)
