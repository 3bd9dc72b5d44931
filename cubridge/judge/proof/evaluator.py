"""CuIR expressions as numbers of a proof: finite formulas, infinities and NaN, by the rules of IEEE 754 but without rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.nodes import SIZES, Binary, BoolLit, Call, Expr, FloatLit, Index, IntLit, Name, Unary
from cubridge.ir.printer import print_expr
from cubridge.ir.walk import free_names, walk
from cubridge.judge.proof.formulas import LN2, PI, Formulas, Ratio, constant
from cubridge.judge.proof.integers import COMPARISONS, EXACT_IN_FP32
from cubridge.judge.proof.rewrites import REWRITES
from cubridge.judge.proof.sums import ONE, ZERO, Sum, of_atom
from cubridge.judge.proof.unproved import Unproved


@dataclass(frozen=True, slots=True)
class Infinite:
    sign: int


@dataclass(frozen=True, slots=True)
class Undefined:
    """NaN."""


Value = Ratio | Infinite | Undefined
NAN: Final = Undefined()
ZERO_VALUE: Final = Ratio(ZERO)
ONE_VALUE: Final = Ratio(ONE)
_HOLDS: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda d: d < 0, "<=": lambda d: d <= 0, ">": lambda d: d > 0, ">=": lambda d: d >= 0,
    "==": lambda d: d == 0, "!=": lambda d: d != 0,
}  # fmt: skip
"""A comparison by the sign of the difference."""
_NAMED: Final = {
    "LN2": Ratio(of_atom(LN2)),
    "LOG2E": Ratio(of_atom(LN2, -1)),
    "pi": Ratio(of_atom(PI)),
    "inf": Infinite(1),
    "nan": NAN,
}
_OPAQUE: Final = ("tanh", "erf", "sin", "cos")
_AT_INFINITY: Final = {"tanh": (1, -1), "erf": (1, -1)}
"""What a function goes to at inf and at -inf."""


@dataclass
class Evaluator:
    """`names`: the values of names; all other names are indices, sizes and captured values. `device`: are conditions decided
    by fp32, so that they must be exact. `guards`: what must be positive, or must not be 0, for the formula to have a value."""

    formulas: Formulas
    names: Mapping[str, Value]
    device: bool
    guards: list[Sum] = field(default_factory=list[Sum])

    # ---- numbers ----

    def value(self, expr: Expr) -> Value:
        """Errors: Unproved for what has no form in the algebra."""
        match expr:
            case IntLit(value) | FloatLit(value):
                return constant(value)
            case Name(name):
                return self._name(name)
            case Index(Name(name), indices):
                return self._load(expr, name, indices)
            case Unary("-", operand):
                return negative(self.value(operand))
            case Binary("+", left, right):
                return self._add(self.value(left), self.value(right))
            case Binary("-", left, right):
                return self._add(self.value(left), negative(self.value(right)))
            case Binary("*", left, right):
                return self._times(self.value(left), self.value(right))
            case Binary("/", left, right):
                return self._over(self.value(left), self.value(right))
            case Binary("**", base, exponent):
                return self._power(self.value(base), self.value(exponent))
            case Binary("//" | "%", _, _):
                return self.formulas.integer(expr)
            case Call(fn, args):
                return self._call(expr, fn, args)
            case _:
                raise Unproved(f"`{print_expr(expr)}` is no number")

    def finite(self, expr: Expr) -> Ratio:
        """Errors: Unproved for what is infinite or NaN in this case."""
        value = self.value(expr)
        if not isinstance(value, Ratio):
            raise Unproved(f"`{print_expr(expr)}` is not finite")
        return value

    def _name(self, name: str) -> Value:
        if name in self.names:
            return self.names[name]
        if name in _NAMED:
            return _NAMED[name]
        if name not in SIZES and name not in ("i", "j", "h", "b") and name not in self.formulas.integers.captures:
            raise Unproved(f"nothing is known of `{name}`")
        return self.formulas.symbol(name)

    def _load(self, expr: Expr, name: str, indices: tuple[Expr, ...]) -> Value:
        match self.formulas.integers.captures.get(name):
            case "f32":
                return self.formulas.load(name, indices)
            case "i32":
                return self.formulas.integer(expr)
            case _:
                raise Unproved(f"`{print_expr(expr)}` is no number")

    def _add(self, a: Value, b: Value) -> Value:
        match a, b:
            case Ratio(), Ratio():
                return a + b
            case (Undefined(), _) | (_, Undefined()):
                return NAN
            case Infinite(x), Infinite(y):
                return a if x == y else NAN
            case Infinite(), _:
                return a
            case _:
                return b

    def _times(self, a: Value, b: Value) -> Value:
        if isinstance(a, Ratio) and isinstance(b, Ratio):
            return a * b
        if isinstance(a, Undefined) or isinstance(b, Undefined):
            return NAN
        sign = self._sign(a) * self._sign(b)
        return Infinite(sign) if sign else NAN

    def _sign(self, value: Ratio | Infinite) -> int:
        return value.sign if isinstance(value, Infinite) else self.formulas.sign(value)

    def _over(self, a: Value, b: Value) -> Value:
        match a, b:
            case Ratio(), Ratio():
                if self.formulas.is_zero(b.top):
                    return NAN
                self._guard(b)
                return a / b
            case Ratio(), Infinite():
                return ZERO_VALUE
            case Infinite(), Ratio():
                return self._times(a, b)
            case _:
                return NAN

    def _guard(self, value: Ratio) -> None:
        for part in (value.top, value.bottom):
            if not self.formulas.sign_of(part):
                self.guards.append(part)

    def _power(self, base: Value, exponent: Value) -> Value:
        power = exponent.top.number if isinstance(exponent, Ratio) and exponent.bottom == ONE else None
        if not isinstance(base, Ratio) or power is None:
            raise Unproved("a power that is not a number")
        if power < 0 or power.denominator != 1:
            self._guard(base)
        return self.formulas.power(base, power)

    # ---- calls ----

    def _call(self, expr: Expr, fn: str, args: tuple[Expr, ...]) -> Value:
        if fn in REWRITES:
            return self.value(REWRITES[fn].apply(args))
        match fn, args:
            case "where", (condition, then, otherwise):
                return self.value(then if self.truth(condition) else otherwise)
            case "maximum" | "minimum", (left, right):
                return self._extremum(fn, left, right)
            case "abs", (operand,):
                value = self.value(operand)
                return value if isinstance(value, Undefined) or self._sign(value) >= 0 else negative(value)
            case "f32", (operand,):
                return self._converted(operand)
            case "ceil_div" | "floor_div" | "floor_mod", _:
                return self.formulas.integer(expr)
            case "i32" | "i64", (operand,):
                return self._truncated(operand)
            case "exp", (operand,):
                return self._exp(self.value(operand))
            case "log", (operand,):
                return self._log(self.value(operand))
            case fn, (operand,) if fn in _OPAQUE:
                return self._opaque(fn, self.value(operand))
            case _:
                raise Unproved(f"`{fn}` is not known to the algebra")

    def _extremum(self, fn: str, left: Expr, right: Expr) -> Value:
        if self.formulas.integers.is_integer(left) and self.formulas.integers.is_integer(right):
            first = self.truth(Binary("<=" if fn == "minimum" else ">=", left, right))
            return self.value(left if first else right)
        a, b = self.value(left), self.value(right)
        if isinstance(a, Undefined) or isinstance(b, Undefined):
            return NAN
        difference = self._difference(a, b)
        return a if (difference >= 0) == (fn == "maximum") else b

    def _difference(self, a: Ratio | Infinite, b: Ratio | Infinite) -> int:
        """The sign of a - b."""
        if isinstance(a, Ratio) and isinstance(b, Ratio):
            return self.formulas.sign(a - b)
        left = a.sign if isinstance(a, Infinite) else 0
        right = b.sign if isinstance(b, Infinite) else 0
        return (left > right) - (left < right)

    def _converted(self, operand: Expr) -> Value:
        """`f32` of an integer: exact up to 2^24, and refused beyond."""
        integers = self.formulas.integers
        if self.device and integers.is_integer(operand):
            whole = integers.integer(operand)
            if not integers.holds(integers.within(whole, -EXACT_IN_FP32, EXACT_IN_FP32)):
                raise Unproved(f"`{print_expr(operand)}` may pass 2^24, where floats of 32 bits skip integers")
        return self.value(operand)

    def _truncated(self, operand: Expr) -> Value:
        """An integer stays what it is; what a cast makes of another number is a function of it."""
        value = self.value(operand)
        if self.formulas.integers.is_integer(operand) or (isinstance(value, Ratio) and self.formulas.is_whole(value)):
            return value
        return self.formulas.apply("truncated", value) if isinstance(value, Ratio) else NAN

    def _exp(self, value: Value) -> Value:
        match value:
            case Ratio():
                return self.formulas.exp(value)
            case Infinite(sign):
                return value if sign > 0 else ZERO_VALUE
            case _:
                return NAN

    def _log(self, value: Value) -> Value:
        match value:
            case Ratio():
                if self.formulas.is_zero(value.top):
                    return Infinite(-1)
                self._guard(value)
                return self.formulas.log(value)
            case Infinite(sign):
                return value if sign > 0 else NAN
            case _:
                return NAN

    def _opaque(self, fn: str, value: Value) -> Value:
        match value:
            case Ratio():
                return ZERO_VALUE if not value.top and fn != "cos" else self.formulas.apply(fn, value)
            case Infinite(sign) if fn in _AT_INFINITY:
                return constant(_AT_INFINITY[fn][sign < 0])
            case _:
                return NAN

    # ---- truths ----

    def truth(self, expr: Expr) -> bool:
        """Whether a condition holds in this case."""
        match expr:
            case BoolLit(value):
                return value
            case Unary("~", operand):
                return not self.truth(operand)
            case Binary("&", left, right):
                return self.truth(left) and self.truth(right)
            case Binary("|", left, right):
                return self.truth(left) or self.truth(right)
            case Binary("^", left, right):
                return self.truth(left) != self.truth(right)
            case Call("where", (condition, then, otherwise)):
                return self.truth(then if self.truth(condition) else otherwise)
            case Binary(op, left, right) if op in COMPARISONS and not self._is_discrete(left, right):
                return self._compared(op, self.value(left), self.value(right))
            case _:
                return self.formulas.holds(self.formulas.integers.boolean(expr))

    def _is_discrete(self, left: Expr, right: Expr) -> bool:
        """Is a comparison one of integers, as they are or as floats of the device."""
        integers = self.formulas.integers
        if integers.is_integer(left) and integers.is_integer(right):
            return True
        reads = free_names(left) | free_names(right)
        return self.device and not reads & self.names.keys() and not self._reads_infinity(left, right)

    def _reads_infinity(self, *parts: Expr) -> bool:
        return any(n == Name("inf") for part in parts for n in walk(part))

    def _compared(self, op: str, a: Value, b: Value) -> bool:
        if isinstance(a, Undefined) or isinstance(b, Undefined):
            return op == "!="
        return _HOLDS[op](self._difference(a, b))


def negative(value: Value) -> Value:
    match value:
        case Ratio():
            return -value
        case Infinite(sign):
            return Infinite(-sign)
        case _:
            return NAN
