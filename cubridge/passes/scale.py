"""Constant factors that the host computes: a number times powers of positive or unknown quantities."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from cubridge.ir.algebra.exprs import product
from cubridge.ir.algebra.hosts import is_positive
from cubridge.ir.nodes import SIZES, Attr, Binary, Call, Expr, FloatLit, IntLit, Kernel, Name, Node, Scalar, Unary
from cubridge.ir.walk import free_names, rewrite, walk


@dataclass(frozen=True, slots=True)
class Scale:
    """`coefficient * base ** power * ..`; bases in the order in which they appeared, no power is 0."""

    coefficient: Fraction = Fraction(1)
    powers: tuple[tuple[Expr, float], ...] = ()

    @staticmethod
    def number(value: float) -> Scale:
        """The scale of a literal: the decimal that it shows, so that a factor and its inverse give 1."""
        return Scale(Fraction(repr(value)))

    def __mul__(self, other: Scale) -> Scale:
        powers = dict(self.powers)
        for base, power in other.powers:
            powers[base] = powers.get(base, 0.0) + power
        return Scale(self.coefficient * other.coefficient, tuple((b, p) for b, p in powers.items() if p))

    def __pow__(self, power: float) -> Scale:
        exponent = int(power) if float(power).is_integer() else power
        return Scale(Fraction(self.coefficient**exponent), tuple((b, p * power) for b, p in self.powers))

    def __truediv__(self, other: Scale) -> Scale:
        return self * other**-1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scale):
            return NotImplemented
        return self.coefficient == other.coefficient and dict(self.powers) == dict(other.powers)

    def __hash__(self) -> int:
        return hash((self.coefficient, frozenset(self.powers)))

    @property
    def positive_part(self) -> Scale:
        """The factors that are surely positive; a sign stays behind."""
        return Scale(abs(self.coefficient), tuple((b, p) for b, p in self.powers if is_positive(b)))

    def to_expr(self) -> Expr:
        over = [_power(b, p) for b, p in self.powers if p != -1]
        under = [b for b, p in self.powers if p == -1]
        numerator, denominator = _literals(abs(self.coefficient), alone=not self.powers)
        if numerator != 1 or not over:
            over.insert(0, FloatLit(numerator))
        if denominator != 1:
            under.insert(0, FloatLit(denominator))
        result = product(over) or FloatLit(1.0)
        for base in under:
            result = Binary("/", result, base)
        return result if self.coefficient >= 0 else _minus(result)


def _literals(value: Fraction, alone: bool) -> tuple[float, float]:
    """Literals whose quotient is `value`: one where a decimal shows it, an inverse or a quotient of whole numbers. Beside other
    factors the inverse of a whole number is a division."""
    if value == 0:
        return 0.0, 1.0
    decimal = float(value)
    is_inverse = value.numerator == 1 and value.denominator < 2**53
    if is_inverse and not alone and value.denominator.bit_count() > 1:
        return 1.0, float(value.denominator)
    if Fraction(repr(decimal)) == value:
        return decimal, 1.0
    if max(value.numerator, value.denominator) < 2**53:
        return float(value.numerator), float(value.denominator)
    return decimal, 1.0


ONE: Final = Scale()
MINUS_ONE: Final = Scale(Fraction(-1))


def _power(base: Expr, power: float) -> Expr:
    return base if power == 1 else Binary("**", base, FloatLit(power))


def _minus(value: Expr) -> Expr:
    match value:
        case FloatLit(number):
            return FloatLit(-number)
        case Binary("*" | "/" as op, left, right):
            return Binary(op, _minus(left), right)
        case _:
            return Unary("-", value)


def scale_of(expr: Expr) -> Scale:
    """The factors of a host expression; a sum, or a call, is one base."""
    match expr:
        case IntLit(value) | FloatLit(value):
            return Scale.number(value)
        case Unary("-", operand):
            return scale_of(operand) * MINUS_ONE
        case Binary("*", left, right):
            return scale_of(left) * scale_of(right)
        case Binary("/", left, right) if scale_of(right).coefficient:
            return scale_of(left) / scale_of(right)
        case Binary("**", base, IntLit(power) | FloatLit(power)) if _may_distribute(scale_of(base), power):
            return scale_of(base) ** float(power)
        case Call("sqrt", (base,)) if _may_distribute(scale_of(base), 0.5):
            return scale_of(base) ** 0.5
        case Call("rsqrt", (base,)) if _may_distribute(scale_of(base), -0.5):
            return scale_of(base) ** -0.5
        case Call("rcp", (base,)) if scale_of(base).coefficient:
            return scale_of(base) ** -1
        case Call("f32", (operand,)):
            return scale_of(operand)
        case _:
            return Scale(Fraction(1), ((without_casts(expr), 1.0),))


def _may_distribute(base: Scale, power: float) -> bool:
    """Is (a * b) ** power the product of the powers: all factors positive, or a whole power."""
    whole = float(power).is_integer() and base.coefficient != 0
    return whole or (base.coefficient > 0 and all(is_positive(b) for b, _ in base.powers))


def without_casts(expr: Expr) -> Expr:
    """A host expression without casts to float: the host computes with Python's numbers."""

    def change(node: Node) -> Node:
        return node.args[0] if isinstance(node, Call) and node.fn == "f32" else node

    return rewrite(expr, change)


# ---- what the host can compute ---------------------------------------------------------------------------------------


def host_value(expr: Expr, kernel: Kernel) -> Expr | None:
    """The host expression of what a launch knows: sizes, constants and scalar parameters; None for anything else."""
    value = with_hosts(expr, kernel)
    return value if _is_host(value, kernel) else None


def with_hosts(expr: Expr, kernel: Kernel) -> Expr:
    """An expression with what the launch computes in place of scalar parameters."""
    hosts: dict[Expr, Expr | None] = {
        Attr(Name("p"), f.name): f.type.host for f in kernel.params if isinstance(f.type, Scalar)
    }

    def change(node: Node) -> Node:
        return (hosts.get(node) or node) if isinstance(node, Attr) else node

    return rewrite(expr, change)


def _is_host(expr: Expr, kernel: Kernel) -> bool:
    scalars = {f.type.host for f in kernel.params if isinstance(f.type, Scalar)}
    known = {*SIZES, *(h.id for h in scalars if isinstance(h, Name))}
    return free_names(expr) <= known and not any(isinstance(n, Attr) for n in walk(expr))
