"""What the parts of a sum, or the monomials of a polynomial, have in common: the number that a canonical form takes out."""

from __future__ import annotations

import math
from fractions import Fraction

from cubridge.frontend.reference.algebra.numbers import split_product
from cubridge.frontend.reference.algebra.polynomials import from_terms, terms_of
from cubridge.frontend.reference.algebra.terms import Const, Term, is_op


def content(p: Term) -> int:
    """Greatest common factor of the coefficients, with the sign of the first."""
    if isinstance(p, Const):
        return int(p.value) or 1
    coefficients = list(terms_of(p).values())
    common = math.gcd(*coefficients)
    return -common if coefficients[0] < 0 else common


def scaled(p: Term, content: int) -> Term:
    return p if content == 1 else from_terms({m: c // content for m, c in terms_of(p).items()})


def sum_content(term: Term) -> Fraction:
    """The number that all parts of a sum but a constant are whole multiples of, with the sign of one that signs do not choose:
    the same for every multiple of the sum. 1 where the multiples are large, as of 0.1 and 0.3 in floating point."""
    found = _parts(term)
    sign = 1 if min(found)[1] > 0 else -1
    denominator = math.lcm(*(c.denominator for _, c in found))
    common = Fraction(math.gcd(*(int(c * denominator) for _, c in found)), denominator)
    small = all(abs(c) <= common * LARGEST_MULTIPLE for _, c in found)
    return sign * (common if small else Fraction(1))


LARGEST_MULTIPLE = 1 << 10


def shared_factor(term: Term) -> Fraction:
    """The magnitude that all parts of a sum but a constant have; 1 where they differ."""
    magnitudes = {abs(c) for _, c in _parts(term)}
    return magnitudes.pop() if len(magnitudes) == 1 else Fraction(1)


def _parts(term: Term) -> list[tuple[tuple[tuple[int, Fraction], ...], Fraction]]:
    """The parts of a sum but a constant, as (what identifies it whatever its coefficient, its coefficient)."""
    found: list[tuple[tuple[tuple[int, Fraction], ...], Fraction]] = []
    for part in term.children():
        coefficient, factors = split_product(part)
        if not factors:
            continue
        key: list[tuple[int, Fraction]] = []
        for base, exponent in factors:
            if is_op(base, "real") and exponent == 1:
                inner = content(base.children()[0])
                coefficient *= inner
                base = scaled(base.children()[0], inner)
            key.append((base.digest, exponent))
        found.append((tuple(sorted(key)), coefficient))
    return found
