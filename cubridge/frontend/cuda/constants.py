"""Compile-time constants of one instantiation: macros and `constexpr` variables, by value, and those that lifted code names."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cubridge.frontend.cuda.conditions import quotient
from cubridge.frontend.cuda.numbers import literal
from cubridge.frontend.cuda.read import Reader, read_code
from cubridge.frontend.cuda.structure import Program
from cubridge.frontend.cuda.syntax import Cast, CExpr, Ident, Infix, Number, Prefix, Ternary, Truth
from cubridge.frontend.cuda.values import refusal
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Constant, FloatLit, IntLit, Name
from cubridge.ir.source import Span

Numeric = int | float

ROWS: Final = "ROWS"


def _quotient(a: Numeric, b: Numeric) -> Numeric:
    if isinstance(a, int) and isinstance(b, int):
        return quotient(a, b)
    return a / b


_OPERATORS: Final[dict[str, Callable[[Numeric, Numeric], Numeric]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient,
    "%": lambda a, b: a - _quotient(a, b) * b,
    "<<": lambda a, b: int(a) << int(b), ">>": lambda a, b: int(a) >> int(b),
    "&": lambda a, b: int(a) & int(b), "|": lambda a, b: int(a) | int(b), "^": lambda a, b: int(a) ^ int(b),
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&&": lambda a, b: bool(a) and bool(b), "||": lambda a, b: bool(a) or bool(b),
}  # fmt: skip
_BITS: Final = 63
_DEEPEST: Final = 64
"""How many constants may be defined by one another."""
_CASTS: Final[dict[str, Callable[[Numeric], Numeric]]] = {"int": int, "float": float, "bool": bool}


class OutOfRange(CuError):
    """A constant that is one, and whose value no kernel may have."""


@dataclass(slots=True)
class Constants:
    """`used`: the integer constants that lifted code names, in the order of use."""

    program: Program
    used: dict[str, int] = field(default_factory=dict[str, int])
    _open: set[str] = field(default_factory=set[str])
    _values: dict[str, Numeric] = field(default_factory=dict[str, Numeric])

    def is_constant(self, name: str) -> bool:
        macro = self.program.macro(name)
        return name in self.program.constants or (macro is not None and macro.params is None and bool(macro.body))

    def definition(self, name: str, place: Span) -> CExpr:
        """What the constant is defined as."""
        constant = self.program.constants.get(name)
        if constant is not None:
            return constant.value
        macro = self.program.unit.macros[name]
        return read_code(macro.body, Reader(self.program.unit.main, self.program.unit.macros), place)

    def value(self, name: str, place: Span) -> Numeric:
        """Errors: CU423 if it has no value here."""
        if name in self._values:
            return self._values[name]
        if name in self._open:
            raise refusal(f"`{name}` is defined by itself", place)
        if len(self._open) == _DEEPEST:
            raise _out_of_range(f"`{name}` is defined by more than {_DEEPEST} others", place)
        self._open.add(name)
        try:
            value = self.evaluate(self.definition(name, place))
        finally:
            self._open.discard(name)
        constant = self.program.constants.get(name)
        as_float = constant is not None and constant.type.name == "float"
        return self._values.setdefault(name, float(value) if as_float else value)

    def number(self, name: str) -> Numeric | None:
        """The value of a constant, None for any other name. Errors: CU423 for a value that no kernel may have."""
        try:
            return self.value(name, self.program.kernels()[0].span) if self.is_constant(name) else None
        except OutOfRange:
            raise
        except CuError:
            return None

    def use(self, name: str, place: Span) -> Name:
        """An integer constant as a name of CuIR."""
        value = self.value(name, place)
        if not isinstance(value, int):
            raise refusal(f"`{name}` is not an integer", place)
        self.used[name] = int(value)
        return Name(name, span=place)

    def evaluate(self, expr: CExpr) -> Numeric:
        """The number of a constant expression. Errors: CU423 if it is none."""
        match expr:
            case Number(text):
                return _number(text, expr.span)
            case Truth(value):
                return value
            case Ident(name) if self.is_constant(name):
                return self.value(name, expr.span)
            case Prefix("-", operand):
                return -self.evaluate(operand)
            case Prefix("+", operand):
                return self.evaluate(operand)
            case Prefix("!", operand):
                return not self.evaluate(operand)
            case Infix(op, left, right) if op in _OPERATORS:
                return _applied(op, self.evaluate(left), self.evaluate(right), expr.span)
            case Ternary(condition, then, other):
                return self.evaluate(then if self.evaluate(condition) else other)
            case Cast(type, operand) if type.name in _CASTS and not type.pointers:
                return _cast(type.name, self.evaluate(operand), expr.span)
            case _:
                raise refusal("this is no constant of the instantiation", expr.span)

    def listed(self, rows: int) -> tuple[Constant, ...]:
        """The used constants, in the order in which the text or the instantiation defines them; `ROWS`, the fragment rows that a
        thread holds, is always one."""
        order = [*self.program.unit.macros, *self.program.constants]
        listed = [Constant(n, self.used[n]) for n in order if n in self.used and n != ROWS]
        return (*listed, Constant(ROWS, rows))


def _applied(op: str, left: Numeric, right: Numeric, place: Span) -> Numeric:
    if op == "<<" and right > _BITS:
        raise _out_of_range("this constant needs more than 64 bits", place)
    try:
        value = _OPERATORS[op](left, right)
    except (ArithmeticError, ValueError):
        raise refusal("this constant has no value", place) from None
    if isinstance(value, int) and value.bit_length() > _BITS:
        raise _out_of_range("this constant needs more than 64 bits", place)
    return value


def _cast(type: str, value: Numeric, place: Span) -> Numeric:
    try:
        return _CASTS[type](value)
    except (ArithmeticError, ValueError):
        raise _out_of_range("no integer has this value", place) from None


def _out_of_range(message: str, place: Span) -> OutOfRange:
    return OutOfRange(*refusal(message, place).diagnostics)


def _number(text: str, place: Span) -> Numeric:
    hexadecimal = text[:2].lower() == "0x"
    match literal(text.rstrip("uUlL" if hexadecimal else "uU"), place).expr:
        case IntLit(number) | FloatLit(number):
            return number
        case _:
            return float(text.rstrip("fF"))
