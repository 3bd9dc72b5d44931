"""The ring of integer polynomials over atoms: sum, product, and the view of a term as monomials."""

from __future__ import annotations

from typing import Final

from cubridge.frontend.reference.algebra.terms import Const, Monomial, Poly, Term, const, order, raw_poly

Terms = dict[Monomial, int]
"""Monomials with their coefficients; the empty monomial is the constant."""

ZERO: Final = const(0)
ONE: Final = const(1)
MINUS_ONE: Final = const(-1)


def terms_of(term: Term) -> Terms:
    match term:
        case Poly():
            return dict(term.monomials)
        case Const():
            return {(): int(term.value)} if term.value else {}
        case _:
            return {(term,): 1}


def from_terms(terms: Terms) -> Term:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return ZERO
    if len(kept) == 1:
        ((monomial, c),) = kept.items()
        if not monomial:
            return const(c)
        if c == 1 and len(monomial) == 1:
            return monomial[0]
    return raw_poly(tuple(sorted(kept.items(), key=_by_degree)))


def _by_degree(entry: tuple[Monomial, int]) -> tuple[int, tuple[int, ...]]:
    return -len(entry[0]), tuple(atom.digest for atom in entry[0])


def leading_coefficient(term: Term) -> int:
    """Coefficient of the first monomial in canonical order; fixes the sign of what is symmetric in it."""
    match term:
        case Poly():
            return term.monomials[0][1]
        case Const():
            return int(term.value)
        case _:
            return 1


def add(*summands: Term) -> Term:
    some = [s for s in summands if s is not ZERO]
    if len(some) == 1:
        return some[0]
    total: Terms = {}
    for summand in some:
        for monomial, c in terms_of(summand).items():
            total[monomial] = total.get(monomial, 0) + c
    return from_terms(total)


def mul(a: Term, b: Term) -> Term:
    if a is ONE or b is ZERO:
        return b
    if b is ONE or a is ZERO:
        return a
    product: Terms = {}
    for left, c in terms_of(a).items():
        for right, k in terms_of(b).items():
            monomial = tuple(sorted(left + right, key=order)) if left and right else left or right
            product[monomial] = product.get(monomial, 0) + c * k
    return from_terms(product)


def product(factors: tuple[Term, ...]) -> Term:
    result: Term = ONE
    for factor in factors:
        result = mul(result, factor)
    return result


def neg(a: Term) -> Term:
    return mul(MINUS_ONE, a)


def sub(a: Term, b: Term) -> Term:
    return add(a, neg(b))


def coefficient(term: Term, atom: Term) -> tuple[Term, Term] | None:
    """(c, r) with term = c * atom + r and no `atom` in r or c; None where the atom appears squared."""
    factor: Terms = {}
    rest: Terms = {}
    for monomial, c in terms_of(term).items():
        match monomial.count(atom):
            case 0:
                rest[monomial] = c
            case 1:
                factor[tuple(a for a in monomial if a is not atom)] = c
            case _:
                return None
    return from_terms(factor), from_terms(rest)


def divide(a: Term, n: Term) -> tuple[Term, Term]:
    """(q, r) with a = q * n + r and every monomial that n divides in q. An n of several monomials divides only itself."""
    divisor = terms_of(n)
    if len(divisor) != 1:
        return (ONE, ZERO) if a is n else (ZERO, a)
    ((by, scale),) = divisor.items()
    whole: Terms = {}
    rest: Terms = {}
    for monomial, c in terms_of(a).items():
        left = without(monomial, by)
        if left is None or c % scale:
            rest[monomial] = c
        else:
            whole[left] = c // scale
    return from_terms(whole), from_terms(rest)


def without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
