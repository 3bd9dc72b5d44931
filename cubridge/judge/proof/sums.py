"""Real formulas as sums of products: `coefficient * atom ** r * .. * exp(sum)`, with rational coefficients and exponents.

Two sums are equal for all values of their atoms if their difference has no terms; atoms that depend on each other are the
business of `formulas`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from cubridge.judge.proof.unproved import Unproved

MAX_TERMS: Final = 600


@dataclass(frozen=True, slots=True)
class Atom:
    """A number that the algebra does not look into. `sign`: 1 if it is > 0, 0 if it is >= 0, None if nothing is known."""

    name: str
    sign: int | None = None


@dataclass(frozen=True, slots=True)
class Product:
    """A product without its number: atoms with their exponents, and e to the power of `exponent`."""

    powers: frozenset[tuple[Atom, Fraction]] = frozenset()
    exponent: Sum | None = None

    def times(self, other: Product) -> Product:
        powers = dict(self.powers)
        for atom, power in other.powers:
            powers[atom] = powers.get(atom, Fraction(0)) + power
        exponent = _added(self.exponent, other.exponent)
        return Product(frozenset((a, p) for a, p in powers.items() if p), exponent)

    def inverse(self) -> Product:
        exponent = None if self.exponent is None else -self.exponent
        return Product(frozenset((a, -p) for a, p in self.powers), exponent)

    def atoms(self) -> Iterator[Atom]:
        """All atoms, those of the exponent too."""
        yield from (a for a, _ in self.powers)
        if self.exponent is not None:
            yield from self.exponent.atoms()


ONE_PRODUCT: Final = Product()


class Sum:
    """`terms`: the number of each product; none is 0. Never changed."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Product, Fraction]) -> None:
        self.terms = {p: c for p, c in terms.items() if c}
        self._hash = hash(frozenset(self.terms.items()))
        if len(self.terms) > MAX_TERMS:
            raise Unproved("a formula grows too large")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and self._hash == other._hash and self.terms == other.terms

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Sum) -> Sum:
        terms = dict(self.terms)
        for product, coefficient in other.terms.items():
            terms[product] = terms.get(product, Fraction(0)) + coefficient
        return Sum(terms)

    def __neg__(self) -> Sum:
        return Sum({p: -c for p, c in self.terms.items()})

    def __sub__(self, other: Sum) -> Sum:
        return self + -other

    def __mul__(self, other: Sum) -> Sum:
        if len(self.terms) * len(other.terms) > MAX_TERMS:
            raise Unproved("a formula grows too large")
        terms: dict[Product, Fraction] = {}
        for p, c in self.terms.items():
            for q, d in other.terms.items():
                product = p.times(q)
                terms[product] = terms.get(product, Fraction(0)) + c * d
        return Sum(terms)

    @property
    def single(self) -> tuple[Product, Fraction] | None:
        """The only term."""
        return next(iter(self.terms.items())) if len(self.terms) == 1 else None

    @property
    def number(self) -> Fraction | None:
        """The value of a sum without atoms."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get(ONE_PRODUCT) if len(self.terms) == 1 else None

    def atoms(self) -> Iterator[Atom]:
        return (a for p in self.terms for a in p.atoms())

    def over(self, other: Sum) -> Sum | None:
        """The one term t with `self == t * other`, if there is one."""
        if len(self.terms) != len(other.terms) or not other:
            return None
        product, coefficient = next(iter(other.terms.items()))
        inverse = product.inverse()
        for p, c in self.terms.items():
            ratio = Sum({p.times(inverse): c / coefficient})
            if ratio * other == self:
                return ratio
        return None


def _added(left: Sum | None, right: Sum | None) -> Sum | None:
    if left is None or right is None:
        return left or right
    return left + right or None


ZERO: Final = Sum({})
ONE: Final = Sum({ONE_PRODUCT: Fraction(1)})


def number(value: Fraction | int) -> Sum:
    return Sum({ONE_PRODUCT: Fraction(value)})


def of_atom(atom: Atom, power: Fraction | int = 1) -> Sum:
    return Sum({Product(frozenset({(atom, Fraction(power))})): Fraction(1)})


def of_exponent(exponent: Sum) -> Sum:
    return Sum({Product(frozenset(), exponent or None): Fraction(1)})


def total(sums: Iterable[Sum]) -> Sum:
    result = ZERO
    for item in sums:
        result = result + item
    return result
