"""Proofs that an integer is never negative, from what is known of sizes, indices and constants. "No" means "not proved"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cubridge.ir.nodes import SIZES, Attr, Binary, Call, Expr, FloatLit, IntLit, Kernel, Name, Scalar
from cubridge.ir.region_types import TILE_FIELDS
from cubridge.passes.poly import Poly, divided_term, poly

_DEPTH: Final = 12
"""Case splits and replacements on the way to one answer."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`constants`: compile-time values. `least`: lower bounds of atoms."""

    constants: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[Expr, int] = field(default_factory=dict)

    @staticmethod
    def of(kernel: Kernel) -> Facts:
        """What holds for every instantiation of a kernel: sizes are at least 1, indices at least 0, tile sizes at least 1."""
        sizes = [c.name for c in kernel.constants if isinstance(c.value, int) and c.value >= 1]
        least: dict[Expr, int] = {}
        least.update((Name(n), 1) for n in (*SIZES, *sizes))
        least.update((Name(n), 0) for n in ("i", "j", "e", "t", "n"))
        least.update((Attr(Name("tile"), n), 0) for n in TILE_FIELDS)
        hosts = {f.name: f.type.host for f in kernel.params if isinstance(f.type, Scalar) and f.type.host is not None}
        least.update((Attr(Name("p"), n), 1) for n, host in hosts.items() if _at_least_one(host))
        return Facts(least=least)

    @staticmethod
    def of_instantiation(kernel: Kernel) -> Facts:
        """What holds for one instantiation, with its values of all constants. Not for what must stay right in others."""
        constants = {c.name: c.value for c in kernel.constants if isinstance(c.value, int)}
        return replace(Facts.of(kernel), constants=constants)


def _at_least_one(host: Expr) -> bool:
    """Is a host expression surely 1 or more."""
    match host:
        case IntLit(value) | FloatLit(value):
            return value >= 1
        case Name(name):
            return name in SIZES
        case Binary("*" | "+", left, right) | Call("minimum", (left, right)):
            return _at_least_one(left) and _at_least_one(right)
        case Binary("**", base, IntLit(power) | FloatLit(power)):
            return power >= 0 and _at_least_one(base)
        case Call("maximum", (left, right)):
            return _at_least_one(left) or _at_least_one(right)
        case Call("i32" | "floor" | "ceil" | "round" | "sqrt" | "f32", (operand,)):
            return _at_least_one(operand)
        case _:
            return False


def at_most(left: Poly, right: Poly, facts: Facts) -> bool:
    """Is `left <= right` always."""
    return nonnegative(right - left, facts)


def positive(value: Poly, facts: Facts) -> bool:
    return nonnegative(value - 1, facts)


def nonnegative(value: Poly, facts: Facts) -> bool:
    """Is `value >= 0` always."""
    return _nonnegative(value, facts, _DEPTH)


def _nonnegative(value: Poly, facts: Facts, depth: int) -> bool:
    for name, constant in facts.constants.items():
        value = value.replaced(Name(name), Poly.constant(constant))
    number = value.as_int()
    if number is not None:
        return number >= 0
    if depth == 0:
        return False
    if _sum_of_least(value, facts):
        return True
    split = next(_splits(value), None)
    if split is not None:
        every, cases = split
        return (all if every else any)(_nonnegative(c, facts, depth - 1) for c in cases)
    return any(_nonnegative(v, facts, depth - 1) for v in _weaker(value, facts))


def _sum_of_least(value: Poly, facts: Facts) -> bool:
    """Are all terms at least a number, and these numbers together at least 0."""
    total = 0
    for monomial, coefficient in value.terms:
        if not monomial:
            total += coefficient
            continue
        least = [_least(a, facts) for a in monomial]
        if coefficient < 0 or any(x is None or x < 0 for x in least):
            return False
        product = coefficient
        for x in least:
            product *= x or 0
        total += product
    return total >= 0


def _least(atom: Expr, facts: Facts) -> int | None:
    if atom in facts.least:
        return facts.least[atom]
    match atom:
        case Binary("%", _, by) if _is_positive(by, facts):
            return 0
        case Binary("//", value, by) if _is_positive(by, facts) and nonnegative(poly(value), facts):
            return 0
        case Call("abs"):
            return 0
        case _:
            return None


def _is_positive(expr: Expr, facts: Facts) -> bool:
    return positive(poly(expr), facts)


def _splits(value: Poly) -> Iterator[tuple[bool, tuple[Poly, ...]]]:
    """Ways to decide by cases: (must all hold, the cases). Each is equivalent to the value, or stronger."""
    for monomial, coefficient in value.terms:
        if len(monomial) != 1:
            continue
        (atom,) = monomial
        match atom:
            case Call("minimum" | "maximum" as fn, (left, right)):
                every = (fn == "minimum") == (coefficient > 0)
                yield every, (value.replaced(atom, poly(left)), value.replaced(atom, poly(right)))
            case Call("where", (_, left, right)):
                yield True, (value.replaced(atom, poly(left)), value.replaced(atom, poly(right)))
            case Call("abs", (operand,)):
                yield coefficient < 0, (value.replaced(atom, poly(operand)), value.replaced(atom, -poly(operand)))
            case _:
                pass


def _weaker(value: Poly, facts: Facts) -> Iterator[Poly]:
    """Values that are at most `value`: a term replaced by a bound of it."""
    for monomial, coefficient in value.terms:
        for atom in monomial:
            rest = Poly(((tuple(_minus_one(monomial, atom)), coefficient),))
            multiple = _floored(atom, rest, facts)
            if multiple is not None:
                yield value.without(monomial) + multiple
            if len(monomial) > 1 and not _never_negative(rest * (1 if coefficient > 0 else -1), facts):
                continue
            for bound in _bounds(atom, coefficient > 0, facts):
                yield value.without(monomial) + rest * bound


def _floored(atom: Expr, rest: Poly, facts: Facts) -> Poly | None:
    """A lower bound of `rest * atom` where atom is `v // n` and rest is `k * n`: n * (v // n) is in (v - n, v]."""
    if not (isinstance(atom, Binary) and atom.op == "//" and _is_positive(atom.right, facts)):
        return None
    ((monomial, coefficient),) = rest.terms
    by = poly(atom.right)
    quotient = divided_term(monomial, abs(coefficient), by)
    if quotient is None:
        return None
    times = Poly((quotient,))
    if not _never_negative(times, facts):
        return None
    value = poly(atom.left)
    return times * (value - by + 1) if coefficient > 0 else -(times * value)


def _minus_one(monomial: tuple[Expr, ...], atom: Expr) -> list[Expr]:
    rest = list(monomial)
    rest.remove(atom)
    return rest


def _never_negative(value: Poly, facts: Facts) -> bool:
    return _sum_of_least(value, facts)


def _bounds(atom: Expr, from_below: bool, facts: Facts) -> Iterator[Poly]:
    """Lower bounds of an atom, or upper bounds, other than those of its terms alone."""
    match atom:
        case Binary("%", value, by) if _is_positive(by, facts):
            if not from_below:
                yield poly(by) - 1
                if nonnegative(poly(value), facts):
                    yield poly(value)
        case Binary("//", value, by) if _is_positive(by, facts) and nonnegative(poly(value), facts):
            if not from_below:
                yield poly(value)
        case _:
            pass
