"""Real formulas of one proof: quotients of sums, with exponentials and logarithms in one form, and everything else as atoms.

What an atom stands for is asked of the solver and of the cases of the proof: two loads are one atom where their indices are
provably equal, two calls where their arguments are. A number whose sign is not known is positive in one case, negative in the
next and 0 in the third."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import e, log, log2
from typing import Final

from cubridge.ir.nodes import SIZES, Expr
from cubridge.judge.proof import smt
from cubridge.judge.proof.cases import Cases
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.intervals import Interval, interval_of
from cubridge.judge.proof.smt import Claim, Number
from cubridge.judge.proof.sums import (
    ONE,
    ONE_PRODUCT,
    ZERO,
    Atom,
    Product,
    Sum,
    number,
    of_atom,
    of_exponent,
    total,
)

LN2: Final = Atom("LN2", 1)
PI: Final = Atom("pi", 1)
ODD: Final = ("tanh", "erf", "sin")
_MAX_POWER: Final = 6
LINEAR_EFFORT: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Ratio:
    """`top / bottom`. Equal ratios may look different: ask `Formulas.equal`."""

    top: Sum
    bottom: Sum = ONE

    @staticmethod
    def of(top: Sum, bottom: Sum = ONE) -> Ratio:
        """A denominator of one term goes into the numerator."""
        if bottom.single is not None:
            product, coefficient = bottom.single
            return Ratio(top * Sum({product.inverse(): 1 / coefficient}))
        if not top:
            return Ratio(ZERO)
        quotient = top.over(bottom)
        return Ratio(top, bottom) if quotient is None else Ratio(quotient)

    def __add__(self, other: Ratio) -> Ratio:
        if self.bottom == other.bottom:
            return Ratio.of(self.top + other.top, self.bottom)
        return Ratio.of(self.top * other.bottom + other.top * self.bottom, self.bottom * other.bottom)

    def __neg__(self) -> Ratio:
        return Ratio(-self.top, self.bottom)

    def __sub__(self, other: Ratio) -> Ratio:
        return self + -other

    def __mul__(self, other: Ratio) -> Ratio:
        for a, b in ((self, other), (other, self)):
            quotient = a.top.over(b.bottom) if len(b.bottom.terms) > 1 else None
            if quotient is not None:
                return Ratio.of(quotient * b.top, a.bottom)
        return Ratio.of(self.top * other.top, self.bottom * other.bottom)

    def __truediv__(self, other: Ratio) -> Ratio:
        return self * Ratio.of(other.bottom, other.top)

    def atoms(self) -> Iterator[Atom]:
        yield from self.top.atoms()
        yield from self.bottom.atoms()


def constant(value: Fraction | int | float) -> Ratio:
    """A float is the simplest fraction that rounds to it, or that times log2(e) or log(2)."""
    if not isinstance(value, float):
        return Ratio(number(Fraction(value)))
    for power, unit in ((0, 1.0), (-1, log2(e)), (1, log(2.0))):
        simple = Fraction(value / unit).limit_denominator(1_000_000)
        if abs(float(simple) * unit - value) <= abs(value) * 2.0**-52:
            return Ratio(number(simple) * (of_atom(LN2, power) if power else ONE))
    return Ratio(number(Fraction(value)))


@dataclass
class Formulas:
    """The atoms of one proof and what is known of them. `given`: what holds in all its cases."""

    cases: Cases
    integers: Integers
    given: list[Claim] = field(default_factory=list[Claim])
    signs: list[Sum] = field(default_factory=list[Sum])
    predicates: list[Claim] = field(default_factory=list[Claim])
    calls: dict[str, list[tuple[tuple[Ratio, ...], Atom]]] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    loads: dict[str, list[tuple[tuple[Number, ...], Atom]]] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    whole_numbers: set[str] = field(default_factory=set[str])
    whole: list[tuple[Number, Atom]] = field(default_factory=list[tuple[Number, Atom]])
    logarithms: dict[Atom, Atom] = field(default_factory=lambda: {LN2: Atom("2", 1)})
    roots: dict[Atom, int] = field(default_factory=lambda: {Atom("2", 1): 2})

    # ---- atoms ----

    def symbol(self, name: str, sign: int | None = None) -> Ratio:
        """A number of this name."""
        known = 1 if name in SIZES else 0 if name in ("i", "j", "h", "b") else sign
        return Ratio(of_atom(Atom(name, known)))

    def integer(self, expr: Expr) -> Ratio:
        """An integer that is no sum of products, by what the solver knows of it."""
        value = self.integers.integer(expr)
        given = self.path_facts()
        for known, atom in self.whole:
            if self.integers.holds(smt.compared("==", known, value), *given):
                return Ratio(of_atom(atom))
        sign = 0 if self.integers.holds(smt.compared(">=", value, smt.whole(0))) else None
        atom = Atom(f"integer {len(self.whole)}", sign)
        self.whole.append((value, atom))
        return Ratio(of_atom(atom))

    def load(self, name: str, indices: tuple[Expr, ...]) -> Ratio:
        """An element of a captured tensor."""
        place = tuple(self.integers.integer(x) for x in indices)
        known = self.loads.setdefault(name, [])
        given = self.path_facts()
        for other, atom in known:
            if self.integers.holds(_same_place(place, other), *given):
                return Ratio(of_atom(atom))
        atom = Atom(f"{name} {len(known)}")
        known.append((place, atom))
        return Ratio(of_atom(atom))

    def apply(self, fn: str, *args: Ratio, sign: int | None = None) -> Ratio:
        """A function that the algebra does not know more of than that it is one."""
        known = self.calls.setdefault(fn, [])
        for other, atom in known:
            if all(self.equal(a, b) for a, b in zip(args, other, strict=True)):
                return Ratio(of_atom(atom))
            if fn in ODD and self.equal(-args[0], other[0]):
                return -Ratio(of_atom(atom))
        atom = Atom(f"{fn} {len(known)}", sign)
        known.append((args, atom))
        return Ratio(of_atom(atom))

    # ---- functions ----

    def exp(self, value: Ratio) -> Ratio:
        if value.bottom != ONE:
            return self.apply("exp", value, sign=1)
        rest, factor = ZERO, ONE
        for product, coefficient in value.top.terms.items():
            base = self._logarithm_of(product)
            if base is None:
                rest = rest + Sum({product: coefficient})
            else:
                factor = factor * self._atom_power(base, coefficient)
        return Ratio(factor * of_exponent(rest) if rest else factor)

    def _logarithm_of(self, product: Product) -> Atom | None:
        if product.exponent is not None or len(product.powers) != 1:
            return None
        ((atom, power),) = product.powers
        return self.logarithms.get(atom) if power == 1 else None

    def _atom_power(self, atom: Atom, power: Fraction) -> Sum:
        """A number stays a number where its power is whole."""
        base = self.roots.get(atom)
        if base is None:
            return of_atom(atom, power)
        whole = power.numerator // power.denominator
        rest = power - whole
        return number(Fraction(base) ** whole) * (of_atom(atom, rest) if rest else ONE)

    def log(self, value: Ratio) -> Ratio:
        """Of a positive number; whether it is one is for the caller to know."""
        result = self._log(value.top)
        return result if value.bottom == ONE else result - self._log(value.bottom)

    def _log(self, value: Sum) -> Ratio:
        if value.single is not None:
            product, coefficient = value.single
            if coefficient > 0 and all(a.sign == 1 for a, _ in product.powers):
                parts = [self._log_of_number(coefficient), product.exponent or ZERO]
                parts += [of_atom(self._log_atom(a)) * number(p) for a, p in product.powers]
                return Ratio(total(parts))
        known = self.calls.setdefault("log", [])
        for (other,), atom in known:
            factor = value.over(other.top)
            if factor is not None and self.sign_of(factor) == 1:
                return Ratio(of_atom(atom)) + self._log(factor)
        atom = Atom(f"log {len(known)}")
        known.append(((Ratio(value),), atom))
        return Ratio(of_atom(atom))

    def _log_atom(self, atom: Atom) -> Atom:
        found = next((k for k, base in self.logarithms.items() if base == atom), None)
        if found is None:
            found = Atom(f"log of {atom.name}")
            self.logarithms[found] = atom
        return found

    def _log_of_number(self, value: Fraction) -> Sum:
        parts = [of_atom(self._log_atom(self._root(p))) * number(n) for p, n in _factors(value)]
        return total(parts)

    def _root(self, prime: int) -> Atom:
        atom = Atom(str(prime), 1)
        self.roots[atom] = prime
        return atom

    def power(self, value: Ratio, power: Fraction) -> Ratio:
        """Errors: Unproved for a power that has no form here."""
        if power.denominator == 1 and abs(power) <= _MAX_POWER:
            result = Ratio(ONE)
            for _ in range(abs(power.numerator)):
                result = result * value
            return result if power >= 0 else Ratio(ONE) / result
        if value.bottom != ONE:
            return self.power(Ratio(value.top), power) / self.power(Ratio(value.bottom), power)
        if value.top.single is not None and self.sign_of(value.top) == 1:
            product, coefficient = value.top.single
            factor = total([ONE])
            for prime, times in _factors(coefficient):
                factor = factor * self._atom_power(self._root(prime), times * power)
            exponent = None if product.exponent is None else product.exponent * number(power)
            if all(a.sign == 1 for a, _ in product.powers):
                powers = frozenset((a, p * power) for a, p in product.powers)
                return Ratio(factor * Sum({Product(powers, exponent): Fraction(1)}))
        return self.apply(f"power {power}", value)

    # ---- what is known ----

    def sign_of(self, value: Sum) -> int | None:
        """1, -1 or 0 where the form shows it, or a case of this run says it."""
        shown = _shown_sign(value)
        if shown is not None:
            return shown
        found = self._case_of(value)
        if found is None:
            return None
        index, flip = found
        answered = next((a for key, a in self.cases.taken() if key == ("sign", index)), None)
        return None if answered is None else answered * flip

    def _case_of(self, value: Sum) -> tuple[int, int] | None:
        """The number whose sign is that of `value`, with 1, or its opposite, with -1."""
        for index, known in enumerate(self.signs):
            factor = value.over(known)
            flip = None if factor is None else _shown_sign(factor)
            if flip:
                return index, flip
        return None

    def sign(self, value: Ratio) -> int:
        """The sign of a number in this run: asked for where it is not known."""
        top, bottom = self.sign_of(value.top), self.sign_of(value.bottom)
        if top is not None and bottom is not None:
            return top * bottom
        product = value.top if bottom == 1 else value.top * value.bottom
        found = self._case_of(product)
        if found is None:
            self.signs.append(product)
            found = len(self.signs) - 1, 1
        index, flip = found
        return self.cases.answer(("sign", index), (1, -1, 0)) * flip

    def holds(self, claim: Claim) -> bool:
        """Whether a predicate over integers holds in this run: asked for where the other answers do not decide it."""
        given = self.path_facts()
        if self.integers.holds(claim, *given):
            return True
        if self.integers.holds(smt.negation(claim), *given):
            return False
        for index, known in enumerate(self.predicates):
            if self.integers.holds(smt.compared("==", known, claim)):
                return bool(self.cases.answer(("predicate", index), (1, 0)))
        self.predicates.append(claim)
        return bool(self.cases.answer(("predicate", len(self.predicates) - 1), (1, 0)))

    def path_facts(self) -> list[Claim]:
        """What is known of integers in this run."""
        found = [*self.given]
        for key, answer in self.cases.taken():
            match key:
                case ("predicate", int(index)):
                    found.append(self.predicates[index] if answer else smt.negation(self.predicates[index]))
                case _:
                    pass
        return found

    # ---- equality ----

    def equal(self, a: Ratio, b: Ratio) -> bool:
        """Are two numbers surely equal in this run, where both have a value."""
        if a == b:
            return True
        return self.is_zero(a.top * b.bottom - b.top * a.bottom)

    def is_zero(self, value: Sum) -> bool:
        """Is a sum surely 0 in this run."""
        for key, answer in self.cases.taken():
            match key:
                case ("sign", int(index)) if answer == 0 and value:
                    value = _reduced(value, self.signs[index])
                case _:
                    pass
        return not value

    def is_impossible(self) -> bool:
        """Do the answers of this run contradict each other."""
        return smt.contradict([*_linear_facts(self.sign_facts())], LINEAR_EFFORT)

    def is_positive(self, value: Sum) -> bool:
        """Do the answers of this run show that a sum is > 0."""
        facts = self.sign_facts()
        return all(smt.contradict([*_linear_facts([*facts, (value, sign)])], LINEAR_EFFORT) for sign in (-1, 0))

    def is_whole(self, value: Ratio) -> bool:
        """Is a number surely an integer."""
        terms = value.top.terms.items() if value.bottom == ONE else ()
        return bool(terms) and all(
            c.denominator == 1
            and p.exponent is None
            and all(q.denominator == 1 and q > 0 and a.name in self.whole_numbers for a, q in p.powers)
            for p, c in terms
        )

    def sign_facts(self) -> list[tuple[Sum, int]]:
        """The answers about signs of this run."""
        found: list[tuple[Sum, int]] = []
        for key, answer in self.cases.taken():
            match key:
                case ("sign", int(index)):
                    found.append((self.signs[index], answer))
                case _:
                    pass
        return found


def _factors(value: Fraction) -> list[tuple[int, Fraction]]:
    """The primes of a positive fraction, with their powers; what is too large to factor stays one."""
    found: dict[int, Fraction] = {}
    for part, sign in ((value.numerator, 1), (value.denominator, -1)):
        rest, prime = part, 2
        while rest > 1:
            if prime * prime > rest or prime > 1000:
                prime = rest
            while rest % prime == 0:
                found[prime] = found.get(prime, Fraction(0)) + sign
                rest //= prime
            prime += 1
    return sorted(found.items())


def _shown_sign(value: Sum) -> int | None:
    """The sign of a sum whose terms all have the same one."""
    if not value:
        return 0
    strict, signs = False, set[int]()
    for product, coefficient in value.terms.items():
        factors = [_factor_sign(a, p) for a, p in product.powers]
        if None in factors:
            return None
        strict |= 0 not in factors
        signs.add(1 if coefficient > 0 else -1)
    return signs.pop() if len(signs) == 1 and strict else None


def _factor_sign(atom: Atom, power: Fraction) -> int | None:
    if atom.sign is None and power.denominator == 1 and power.numerator % 2 == 0:
        return 0
    return atom.sign


def _reduced(value: Sum, zero: Sum) -> Sum:
    """`value` where `zero` is 0: an atom that `zero` determines is replaced."""
    for product, coefficient in zero.terms.items():
        if product.exponent is not None:
            continue
        for atom, power in product.powers:
            rest = Sum({p: c for p, c in zero.terms.items() if p != product})
            if power != 1 or atom in set(rest.atoms()):
                continue
            others = Product(product.powers - {(atom, power)})
            solved = -rest * Sum({others.inverse(): 1 / coefficient})
            replaced = substituted(value, atom, solved)
            if replaced is not None:
                return replaced
    return value


def substituted(value: Sum, atom: Atom, new: Sum) -> Sum | None:
    """The sum with another for an atom; None where the atom has a power that no sum has."""
    result = ZERO
    for product, coefficient in value.terms.items():
        factor = number(coefficient)
        powers = dict(product.powers)
        power = powers.pop(atom, Fraction(0))
        if power:
            if power.denominator != 1 or power < 0 or power > _MAX_POWER:
                return None
            for _ in range(power.numerator):
                factor = factor * new
        exponent = product.exponent
        if exponent is not None and atom in set(exponent.atoms()):
            exponent = substituted(exponent, atom, new)
            if exponent is None:
                return None
        result = result + factor * Sum({Product(frozenset(powers.items()), exponent or None): Fraction(1)})
    return result


def _linear_facts(facts: list[tuple[Sum, int]]) -> Iterator[Claim]:
    """The facts as relations of numbers, one unknown for each product, and the interval that each product is in."""
    unknowns: dict[Product, Number] = {}
    for value, sign in facts:
        sum_ = linear(value, unknowns)
        yield smt.compared(">" if sign > 0 else "<" if sign < 0 else "==", sum_, smt.fraction(0))
    for product, unknown in unknowns.items():
        yield from within(unknown, interval_of(product))
        if _shown_sign(Sum({product: Fraction(1)})) == 1:
            yield smt.compared(">", unknown, smt.fraction(0))


def within(unknown: Number, interval: Interval) -> Iterator[Claim]:
    if interval.low is not None:
        yield smt.compared(">=", unknown, smt.fraction(interval.low))
    if interval.high is not None:
        yield smt.compared("<=", unknown, smt.fraction(interval.high))


def linear(value: Sum, unknowns: dict[Product, Number]) -> Number:
    """A sum as a linear form in an unknown for each product."""
    form = smt.fraction(0)
    for product, coefficient in value.terms.items():
        if product == ONE_PRODUCT:
            form = form + smt.fraction(coefficient)
            continue
        unknown = unknowns.setdefault(product, smt.real(f"product {len(unknowns)}"))
        form = form + smt.fraction(coefficient) * unknown
    return form


def _same_place(place: tuple[Number, ...], other: tuple[Number, ...]) -> Claim:
    return smt.all_of(*(smt.compared("==", a, b) for a, b in zip(place, other, strict=True)))
