"""What integer instructions compute, as polynomials. Divisions that PTX truncates are those that round down where nothing is
negative; what is not known to be so has no polynomial, and a run confirms the number of each that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Final

from cubridge.ir.algebra.normal import extremum, floor_div, floor_mod, poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.nodes import Binary, Call, Expr, IntLit, Name

Rule = Callable[..., Poly | None]


def not_negative(value: Poly) -> bool:
    """Known from its form: sums and products of what is not negative."""
    return all(c >= 0 and all(map(_atom_not_negative, m)) for m, c in value.terms)


def _atom_not_negative(atom: Expr) -> bool:
    match atom:
        case Name():
            return True  # sizes, block coordinates, addresses
        case IntLit(value):
            return value >= 0
        case Binary("//" | "%" | "+" | "*", left, right):
            return _atom_not_negative(left) and _atom_not_negative(right)
        case Call("minimum", args):
            return all(map(_atom_not_negative, args))
        case Call("maximum", args):
            return any(map(_atom_not_negative, args))
        case _:
            return False


def divide(a: Poly, b: Poly) -> Poly | None:
    """`a // b`. Query heads are a multiple of key heads, so that Hq // (Hq // Hk) is Hk."""
    if not (not_negative(a) and not_negative(b)):
        return None
    if a.equals(_HQ) and b.equals(_GROUP):
        return _HK
    return floor_div(a, b)


_HQ, _HK = Poly.atom(Name("Hq")), Poly.atom(Name("Hk"))
_GROUP = Poly.atom(Binary("//", Name("Hq"), Name("Hk")))


def remainder(a: Poly, b: Poly) -> Poly | None:
    return floor_mod(a, b) if not_negative(a) and not_negative(b) else None


def _shift_left(a: Poly, b: Poly) -> Poly | None:
    count = b.as_int()
    return None if count is None else a * (1 << count)


def _shift_right(a: Poly, b: Poly) -> Poly | None:
    """Of signed numbers it rounds down. A sign is 0 where the number is known not to be negative."""
    count = b.as_int()
    if count is None:
        return None
    if count in (31, 63) and not_negative(a):
        return Poly(())
    match a.terms:
        case (((Binary("//", Binary("*", number, IntLit(factor)), IntLit(unit)),), 1),):
            return _multiplied(poly(number), factor, unit << count)
        case _:
            return floor_div(a, Poly.constant(1 << count))


def _upper_half(a: Poly, b: Poly) -> Poly | None:
    """Of a product of 64 bits, with a number: how compilers divide by a constant."""
    if b.as_int() is None:
        a, b = b, a
    factor = b.as_int()
    return None if factor is None else _multiplied(a, factor, 1 << 32)


def _multiplied(a: Poly, factor: int, unit: int) -> Poly:
    """`a * factor // unit`, where `unit` is a power of two. It is `a // d` for all a of 31 bits where d is `unit / factor`, and
    d * factor exceeds `unit` by at most its 2**31st part."""
    if factor > 0 and not_negative(a):
        divisor = -(-unit // factor)
        if (divisor * factor - unit) << 31 <= unit:
            return floor_div(a, Poly.constant(divisor))
    return Poly.atom(Binary("//", Binary("*", to_expr(a), IntLit(factor)), IntLit(unit)))


def _shift_right_unsigned(a: Poly, b: Poly) -> Poly | None:
    """Of a sign, 0 or all ones, it keeps the highest bits: what is added before a division that rounds towards zero."""
    count, width = b.as_int(), sign_width(a)
    if count is not None and width is not None and 0 < count < width:
        return floor_mod(a, Poly.constant(1 << width - count))
    return _shift_right(a, b) if not_negative(a) else None


def sign_width(a: Poly) -> int | None:
    """Of how many bits a number is the sign, or None."""
    match a.terms:
        case (((Binary("//", _, IntLit(unit)),), 1),) if unit in (1 << 31, 1 << 63):
            return unit.bit_length()
        case _:
            return None


def _and(a: Poly, b: Poly) -> Poly | None:
    """With a number that keeps the lowest bits, or all others."""
    kept = b.as_int()
    if kept is None:
        return None if a.as_int() is None else _and(b, a)
    if kept >= 0 and kept & (kept + 1) == 0:
        return floor_mod(a, Poly.constant(kept + 1))
    if kept < 0 and -kept & (-kept - 1) == 0:
        return floor_div(a, Poly.constant(-kept)) * -kept
    return None


def _or(a: Poly, b: Poly) -> Poly | None:
    """With a number below a power of two that divides all terms but the number among them."""
    low = b.as_int()
    if low is None:
        return None if a.as_int() is None else _or(b, a)
    unit = gcd(*(c for m, c in a.terms if m))
    unit &= -unit
    if not 0 <= low < unit:
        return None
    number = a.coefficient(())
    return a - number % unit + (number % unit | low)


def _multiply(a: Poly, b: Poly) -> Poly:
    return a * b


RULES: Final[Mapping[str, Rule]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": _multiply,
    "mul.wide": _multiply,
    "mul.hi": _upper_half,
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: a * b + c,
    "neg": lambda a: -a,
    "div": divide,
    "rem": remainder,
    "shl": _shift_left,
    "shr.s": _shift_right,
    "shr.u": _shift_right_unsigned,
    "and": _and,
    "or": _or,
    "min": lambda a, b: extremum("minimum", a, b),
    "max": lambda a, b: extremum("maximum", a, b),
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "cvta": lambda a: a,
}
"""By the instruction without its type; `shr.s` and `shr.u` by the kind of its type."""


def integer_rule(name: str) -> Rule | None:
    parts = name.split(".")
    kind = parts[-1][0]
    if kind not in "bus" or (parts[0] == "cvt" and parts[-2][0] not in "bus"):
        return None
    if parts[0] == "shr":
        return RULES["shr.s" if kind == "s" else "shr.u"]
    return RULES.get(".".join(parts[:2])) or (RULES.get(parts[0]) if parts[0] not in ("mul", "mad") else None)
