"""Shapes that terms are written in: literals, signed sums, remainders, distances."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from cubridge.frontend.reference.algebra import integers, reals
from cubridge.frontend.reference.algebra.numbers import split_product
from cubridge.frontend.reference.algebra.polynomials import Terms, divide, from_terms, terms_of
from cubridge.frontend.reference.algebra.terms import Apply, Const, Index, Sort, Term, apply, const, is_const, is_op
from cubridge.ir.nodes import Binary, BoolLit, Expr, FloatLit, IntLit, Name, Unary
from cubridge.ir.source import Span

_LN2: Final = math.log(2.0)

# ---- numbers ---------------------------------------------------------------------------------------------------------


def literal(value: bool | int | float | Fraction, span: Span) -> Expr:
    """Reals that are whole numbers as integers; others to 15 digits where that is the same float or nearly."""
    if isinstance(value, bool):
        return BoolLit(value, span=span)
    if isinstance(value, int):
        return IntLit(value, span=span)
    if isinstance(value, Fraction):
        return literal(float(value), span)
    if math.isnan(value):
        return Name("nan", span=span)
    if math.isinf(value):
        return Name("inf", span=span) if value > 0 else Unary("-", Name("inf", span=span), span=span)
    if value.is_integer() and abs(value) < 1e9:
        return IntLit(int(value), span=span)
    return FloatLit(float(f"{value:.15g}"), span=span)


def ratio(number: Fraction) -> tuple[float | int, int]:
    """(numerator, denominator) as written: 1 / 3 stays a ratio, 1 / 8 becomes 0.125."""
    if Fraction(float(number)) == number or max(number.denominator, abs(number.numerator)) > 10**6:
        return float(number), 1
    return number.numerator, number.denominator


def in_units_of_ln2(x: Term) -> Term | None:
    """y with x = y * ln 2, where the number is one that `2 ** y` would have left."""
    number, factors = split_product(x)
    ratio = float(number) / _LN2
    exact = Fraction(ratio).limit_denominator(1024)
    if not exact or abs(float(exact) - ratio) > 1e-14 * abs(ratio) or not factors:
        return None
    return reals.join_product(exact, dict(factors))


# ---- forms -----------------------------------------------------------------------------------------------------------


def chain(op: str, parts: list[Expr], span: Span) -> Expr:
    result = parts[0]
    for part in parts[1:]:
        result = Binary(op, result, part, span=span)
    return result


def negated(expr: Expr, span: Span) -> Expr:
    match expr:
        case IntLit():
            return IntLit(-expr.value, span=span)
        case FloatLit():
            return FloatLit(-expr.value, span=span)
        case _:
            return Unary("-", expr, span=span)


def signed_sum(parts: list[tuple[bool, Expr]], span: Span) -> Expr:
    if not parts:
        return IntLit(0, span=span)
    at = next((n for n, (positive, _) in enumerate(parts) if positive), 0)
    parts = [parts[at], *parts[:at], *parts[at + 1 :]]
    positive, result = parts[0]
    if not positive:
        result = negated(result, span)
    for positive, part in parts[1:]:
        result = Binary("+" if positive else "-", result, part, span=span)
    return result


def unsigned(part: Term) -> tuple[bool, Term]:
    """(is it added?, its magnitude)."""
    if isinstance(part, Const):
        return part.value >= 0, const(abs(part.value))
    if is_op(part, "real"):
        inner = part.children()[0]
        return (False, reals.neg(part)) if _negative(inner) else (True, part)
    number, _ = split_product(part)
    return (True, part) if number > 0 else (False, reals.neg(part))


def _negative(p: Term) -> bool:
    return all(c < 0 for c in terms_of(p).values())


def remainders(terms: Terms) -> tuple[Terms, list[tuple[int, Term, Term]]]:
    """Takes c * (x % n) out of a polynomial, n * (x // n) being among its monomials: (rest, [(c, x, n)])."""
    rest = dict(terms)
    found: list[tuple[int, Term, Term]] = []
    for monomial, c in terms.items():
        for quotient in monomial:
            if not (isinstance(quotient, Apply) and quotient.op == "//" and monomial in rest):
                continue
            x, n = quotient.args
            others = list(monomial)
            others.remove(quotient)
            times, left = divide(from_terms({tuple(others): -c}), n)
            if not (isinstance(times, Const) and is_const(left, 0) and times.value):
                continue
            whole = {m: k * int(times.value) for m, k in terms_of(x).items()}
            if all(rest.get(m, 0) == k for m, k in whole.items()):
                rest = {m: k for m, k in rest.items() if m not in whole and m != monomial}
                found.append((int(times.value), x, n))
    return rest, found


def without_constant(terms: Terms) -> Terms:
    """c * ((x + n - 1) // n) - c as c * ((x - 1) // n)."""
    constant = terms.get((), 0)
    if not constant:
        return terms
    for monomial, c in terms.items():
        if len(monomial) == 1 and is_op(monomial[0], "//") and constant % c == 0:
            x, n = monomial[0].children()
            moved = apply("//", (integers.add(x, integers.mul(const(constant // c), n)), n), Sort.INT)
            return {m: k for m, k in terms.items() if m not in (monomial, ())} | {(moved,): c}
    return terms


def sides(terms: Terms) -> tuple[Term, Term]:
    """(magnitude of the negative monomials, the positive ones)."""
    below = from_terms({m: -c for m, c in terms.items() if c < 0})
    above = from_terms({m: c for m, c in terms.items() if c > 0})
    return below, above


def upright(p: Term) -> Term:
    """Of p and -p, which have one absolute value, the one that starts with i."""
    terms = terms_of(p)
    row = next((c for m, c in terms.items() if len(m) == 1 and isinstance(m[0], Index) and m[0].name == "i"), 0)
    return integers.neg(p) if row < 0 or (row == 0 and all(c < 0 for c in terms.values())) else p


def symmetric(a: Term, b: Term, op: str) -> tuple[Term, Term] | None:
    """(t, c) where a, b are c + t >= 0 and c - t >= 0 (and), or t - c >= 0 and -t - c >= 0 (or)."""
    if not (is_op(a, ">=0") and is_op(b, ">=0")):
        return None
    p, q = a.children()[0], b.children()[0]
    twice_bound, twice_distance = integers.add(p, q), integers.sub(p, q)
    if op == "or":
        twice_bound = integers.neg(twice_bound)
    if twice_distance.reads or not {"i", "j"} <= twice_distance.free or twice_bound.free & {"i", "j"}:
        return None
    bound, left = divide(twice_bound, const(2))
    distance, odd = divide(twice_distance, const(2))
    if not (is_const(left, 0) and is_const(odd, 0)) or terms_of(distance).get((), 0):
        return None
    return upright(distance), bound
