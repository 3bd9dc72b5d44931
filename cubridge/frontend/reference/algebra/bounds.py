"""`nonneg(p)`: a proof that an integer is >= 0 for every index in range and every size >= 1. Sound, incomplete.

Atoms leave one by one, deepest first: an atom whose coefficient has a known sign is replaced by its bounds on that side.
What is left is a polynomial in the sizes; with each size written 1 + s it is >= 0 if no coefficient is negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cubridge.frontend.reference.algebra.polynomials import (
    ONE,
    ZERO,
    Terms,
    add,
    coefficient,
    divide,
    from_terms,
    mul,
    neg,
    product,
    sub,
    terms_of,
    without,
)
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Index,
    Monomial,
    Size,
    Sort,
    Term,
    apply,
    arena,
    const,
)

FUEL = 60
"""How many replacements one proof may try."""


def nonneg(p: Term) -> bool:
    if isinstance(p, Const):
        return int(p.value) >= 0
    memo = arena().nonnegative
    known = memo.get(p)
    if known is None:
        memo[p] = False  # a proof may not rest on itself
        known = memo[p] = _Proof(FUEL).searched(p)
    return known


def positive(p: Term) -> bool:
    return nonneg(sub(p, ONE))


class _Proof:
    """One search; `fuel` bounds its work."""

    def __init__(self, fuel: int) -> None:
        self.fuel = fuel

    def nonneg(self, p: Term) -> bool:
        if isinstance(p, Const):
            return int(p.value) >= 0
        memo = arena().nonnegative
        known = memo.get(p)
        if known is not None:
            return known
        self.fuel -= 1
        if self.fuel < 0:
            return False
        found = self.searched(p)
        if found or self.fuel > 0:  # a search that ran out of fuel says nothing
            memo[p] = found
        return found

    def searched(self, p: Term) -> bool:
        terms = terms_of(p)
        atoms = dict.fromkeys(atom for monomial in terms for atom in monomial)
        compound = sorted((a for a in atoms if not isinstance(a, Size)), key=lambda a: (-a.depth, a.digest))
        if not compound:
            return _nonneg_in_sizes(terms)
        for atom in compound:
            split = coefficient(p, atom)
            if split is None:
                continue
            factor, rest = split
            if self.nonneg(factor):
                return self.replaced(atom, factor, rest, low=True)
            if self.nonneg(neg(factor)):
                return self.replaced(atom, factor, rest, low=False)
        return False

    def replaced(self, atom: Term, factor: Term, rest: Term, low: bool) -> bool:
        """Is factor * atom + rest >= 0? Its least value has the atom at its low end, or at its high end."""
        if isinstance(atom, Index):
            return self.nonneg(add(rest, mul(factor, ZERO if low else sub(atom.extent, ONE))))
        if not isinstance(atom, Apply):
            return False
        at = lambda value: self.nonneg(add(rest, mul(factor, value)))  # noqa: E731
        match atom.op, low:
            case ("imin", True) | ("imax", False):
                return all(at(x) for x in atom.args)
            case ("imin", False) | ("imax", True):
                return any(at(x) for x in atom.args)
            case "iabs", True:
                return at(ZERO) or at(atom.args[0]) or at(neg(atom.args[0]))
            case "iabs", False:
                return at(atom.args[0]) and at(neg(atom.args[0]))
            case "where", _:
                return at(atom.args[1]) and at(atom.args[2])
            case "//", _:
                return self.quotient(atom.args[0], atom.args[1], factor, rest, low)
            case "trunc", True:
                return real_nonneg(atom.args[0]) and at(ZERO)
            case _:
                return False

    def quotient(self, a: Term, n: Term, factor: Term, rest: Term, low: bool) -> bool:
        """factor * (a // n) + rest >= 0, from n * (a // n) in [a - n + 1, a]."""
        if not self.nonneg(sub(n, ONE)):
            return False
        if low and self.nonneg(rest) and self.nonneg(a):
            return True
        near = sub(add(a, ONE), n) if low else a
        times, left = divide(factor, n)
        if left is ZERO and self.nonneg(add(rest, mul(times, near))):
            return True
        if any(self.nonneg(add(rest, mul(factor, _floor(end, n)))) for end in ends(a, low)):
            return True
        if isinstance(n, Const) and self.nonneg(add(mul(n, rest), mul(factor, near))):
            return True
        return not low and self.nonneg(a) and self.nonneg(add(rest, mul(factor, a)))


def ends(p: Term, low: bool) -> list[Term]:
    """Some lower (or upper) bounds of p in sizes alone; none where a sign is unknown."""
    bounds: list[Term] = [ZERO]
    for monomial, c in terms_of(p).items():
        moving = [a for a in monomial if a.free or a.reads]
        if not moving:
            bounds = [add(b, from_terms({monomial: c})) for b in bounds]
            continue
        scale = product(tuple(a for a in monomial if a is not moving[0]))
        if len(moving) > 1 or not nonneg(scale):
            return []
        step = mul(const(c), scale)
        bounds = [add(b, mul(step, end)) for b in bounds for end in _atom_ends(moving[0], (c > 0) == low)][:4]
    return bounds


def _atom_ends(atom: Term, low: bool) -> Iterator[Term]:
    if isinstance(atom, Index):
        yield ZERO if low else sub(atom.extent, ONE)
    elif isinstance(atom, Apply):
        match atom.op, low:
            case ("imin", False) | ("imax", True):
                yield from (end for x in atom.args for end in ends(x, low))
            case ("imin", True) | ("imax", False):
                sides = [ends(x, low) for x in atom.args]
                for end in (end for side in sides for end in side):
                    others = [sub(x, end) if low else sub(end, x) for x in atom.args]
                    if all(nonneg(o) for o in others):
                        yield end
            case "iabs", True:
                yield ZERO
            case "//", _ if positive(atom.args[1]):
                yield from (_floor(end, atom.args[1]) for end in ends(atom.args[0], low))
            case _:
                return


def _floor(a: Term, n: Term) -> Term:
    whole, rest = divide(a, n)
    if rest is ZERO:
        return whole
    if isinstance(rest, Const) and isinstance(n, Const):
        return add(whole, const(int(rest.value) // int(n.value)))
    if isinstance(rest, Const) and int(rest.value) < 0 and nonneg(add(n, rest)):
        return sub(whole, ONE)
    return add(whole, apply("//", (rest, n), Sort.INT))


def _nonneg_in_sizes(terms: Terms) -> bool:
    terms = _with_largest_sizes(terms)
    if _all_coefficients_positive(terms):
        return True
    p = from_terms(terms)
    return any(
        _all_coefficients_positive(terms_of(sub(p, mul(times, fact))))
        for fact in arena().facts
        for times in _multiples(terms, terms_of(fact))
    )


def _with_largest_sizes(terms: Terms) -> Terms:
    """Beside a constant that 32 bits do not hold, a sentinel, a size that is taken away is as large as sizes may be."""
    constant = terms.get((), 0)
    if constant <= LARGEST_SIZE:
        return terms
    least = {m: c for m, c in terms.items() if len(m) == 1 and c < 0 and isinstance(m[0], Size)}
    rest = {m: c for m, c in terms.items() if m not in least}
    return rest | {(): constant + LARGEST_SIZE * sum(least.values())}


LARGEST_SIZE: Final = (1 << 31) - 1
"""Launches of larger sizes are refused."""


def _multiples(terms: Terms, fact: Terms) -> Iterator[Term]:
    """What to multiply a fact by so that one of its monomials is one of the terms."""
    for monomial, c in terms.items():
        for known, k in fact.items():
            rest = without(monomial, known) if known else None
            if rest is not None and c * k > 0 and c % k == 0:
                yield from_terms({rest: c // k})


def _all_coefficients_positive(terms: Terms) -> bool:
    """With every size s = 1 + s', s' >= 0."""
    shifted: Terms = {}
    for monomial, c in terms.items():
        part: Terms = {(): c}
        for atom in monomial:
            if not isinstance(atom, Size):
                return False
            grown: Terms = dict(part)
            for m, k in part.items():
                longer: Monomial = tuple(sorted((*m, atom), key=lambda a: a.digest))
                grown[longer] = grown.get(longer, 0) + k
            part = grown
        for m, k in part.items():
            shifted[m] = shifted.get(m, 0) + k
    return all(k >= 0 for k in shifted.values())


def real_nonneg(x: Term) -> bool:
    """A real that is >= 0 by its form."""
    match x:
        case Const():
            return x.value >= 0
        case Apply(op="real"):
            return nonneg(x.args[0])
        case Apply(op="exp" | "abs" | "sigmoid"):
            return True
        case Apply(op="pow"):
            exponent = x.args[1]
            return real_nonneg(x.args[0]) or (isinstance(exponent, Const) and exponent.value % 2 in (0, 0.5))
        case Apply(op="add" | "mul"):
            return all(real_nonneg(a) for a in x.args)
        case Apply(op="max"):
            return any(real_nonneg(a) for a in x.args)
        case Apply(op="min"):
            return all(real_nonneg(a) for a in x.args)
        case Apply(op="where"):
            return real_nonneg(x.args[1]) and real_nonneg(x.args[2])
        case _:
            return False
