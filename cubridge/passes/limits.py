"""What an elementwise function gives for a masked score, -inf: proved over ranges of extended reals, or unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.algebra.exprs import MIRRORED
from cubridge.ir.algebra.interval import AT_LEAST_ONE, EVERYTHING, POSITIVE, REALS, Interval, image
from cubridge.ir.nodes import NAMED_CONSTANTS, SIZES, Binary, Call, Expr, FloatLit, IntLit, Name, Unary


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers of an interval; `finite`: neither infinite nor NaN, whatever the ends say."""

    interval: Interval
    finite: bool

    @property
    def exact(self) -> float | None:
        return self.interval.low if self.interval.low == self.interval.high else None

    @property
    def is_infinity(self) -> bool:
        """One infinity, and which one is known."""
        return self.exact is not None and math.isinf(self.exact)

    def __neg__(self) -> Range:
        return Range(-self.interval, self.finite)


def _exactly(value: float) -> Range:
    return Range(Interval.exactly(value), math.isfinite(value))


UNKNOWN: Final = Range(EVERYTHING, False)
FINITE: Final = Range(EVERYTHING, True)
_POSITIVE: Final = Range(POSITIVE, True)


Values = Mapping[str, float]


def is_zero_when_masked(weight: Expr, values: Values) -> bool:
    """Is `weight` surely 0, and not NaN, where names have these values. Sizes and indices are finite; captured values may be
    anything."""
    return _range(weight, values).exact == 0


def _range(expr: Expr, values: Values) -> Range:
    match expr:
        case IntLit(value) | FloatLit(value):
            return _exactly(float(value))
        case Name(name):
            return _name(name, values)
        case Unary("-", operand):
            return -_range(operand, values)
        case Binary("+", left, right):
            return _sum(_range(left, values), _range(right, values))
        case Binary("-", left, right):
            return _sum(_range(left, values), -_range(right, values))
        case Binary("*", left, right):
            return _product(_range(left, values), _range(right, values))
        case Binary("/", left, right):
            return _product(_range(left, values), _inverse(_range(right, values)))
        case Binary("**", base, IntLit(power)) if power > 0:
            return _power(_range(base, values), power)
        case Binary("**", base, FloatLit()) if (inner := _range(base, values)).interval.low > 0 and inner.finite:
            return _POSITIVE
        case Call(fn, args):
            return _call(fn, args, values)
        case _:
            return UNKNOWN


def _name(name: str, values: Values) -> Range:
    if name in values:
        return _exactly(values[name])
    if name in SIZES:
        return Range(AT_LEAST_ONE, True)
    if name in NAMED_CONSTANTS:
        return _exactly(NAMED_CONSTANTS[name])
    return FINITE if name in ("i", "j") else UNKNOWN


def _finite(fn: str, *arguments: Range) -> Range:
    """What `fn` makes of finite numbers; a result counts as finite unless it surely is not."""
    if not all(a.finite for a in arguments):
        return UNKNOWN
    found = image(fn, [a.interval for a in arguments], REALS)
    return Range(found, found.low < math.inf and found.high > -math.inf)


def _sum(a: Range, b: Range) -> Range:
    for x, y in ((a, b), (b, a)):
        if x.is_infinity:
            return x if y.finite or y.exact == x.exact else UNKNOWN
    return _finite("+", a, b)


def _product(a: Range, b: Range) -> Range:
    for x, y in ((a, b), (b, a)):
        if x.is_infinity:
            return x if y.interval.low > 0 else -x if y.interval.high < 0 else UNKNOWN
    return _finite("*", a, b)


def _inverse(a: Range) -> Range:
    if a.is_infinity:
        return _exactly(0.0)
    if a.interval.high < 0:
        return -_inverse(-a)
    return _finite("/", _exactly(1.0), a) if a.interval.low > 0 else UNKNOWN


def _power(a: Range, power: int) -> Range:
    result = a
    for _ in range(power - 1):
        result = _product(result, a)
    return result


_MONOTONE: Final[dict[str, tuple[Callable[[float], float], float, float]]] = {
    "exp": (math.exp, 0.0, math.inf),
    "exp2": (lambda x: 2.0**x, 0.0, math.inf),
    "tanh": (math.tanh, -1.0, 1.0),
    "tanh_approx": (math.tanh, -1.0, 1.0),
    "erf": (math.erf, -1.0, 1.0),
    "expm1": (math.expm1, -1.0, math.inf),
}
"""Functions with their limits at -inf and inf."""


def _call(fn: str, args: tuple[Expr, ...], values: Values) -> Range:
    inner = [_range(a, values) for a in args[1:] if fn == "where"] or [_range(a, values) for a in args]
    match fn, inner:
        case ("f32", [x]):
            return x if isinstance(args[0], Name | IntLit) else FINITE
        case ("rcp", [x]):
            return _inverse(x)
        case ("abs" | "minimum" | "maximum", _) if all(map(_is_number, inner)):
            found = Range(image(fn, [x.interval for x in inner], REALS), all(x.finite for x in inner))
            return found if found.exact is None else _exactly(found.exact)
        case ("where", [_, _]):
            return _where(args[0], inner, values)
        case ("log" | "log2" | "sqrt" | "rsqrt", [x]) if x.finite and x.interval.low >= 1:
            return FINITE
        case ("log1p" | "log1p_unit", [x]) if x.exact is not None and x.finite and x.exact > -1:
            return _exactly(math.log1p(x.exact))
        case (_, [x]) if fn in _MONOTONE:
            return _monotone(fn, x)
        case _:
            return UNKNOWN


def _is_number(x: Range) -> bool:
    """No NaN: finite, or a known infinity."""
    return x.finite or (x.exact is not None and not math.isnan(x.exact))


def _where(condition: Expr, branches: list[Range], values: Values) -> Range:
    then, otherwise = branches
    match condition:
        case Binary(op, left, right) if op in MIRRORED:
            a, b = _range(left, values), _range(right, values)
            if a.exact is not None and b.exact is not None:
                holds = {"<": a.exact < b.exact, "<=": a.exact <= b.exact, ">": a.exact > b.exact,
                         ">=": a.exact >= b.exact, "==": a.exact == b.exact, "!=": a.exact != b.exact}[op]  # fmt: skip
                return then if holds else otherwise
        case _:
            pass
    return then if then == otherwise and then.exact is not None else UNKNOWN


def _monotone(fn: str, x: Range) -> Range:
    function, bottom, top = _MONOTONE[fn]
    if x.exact == -math.inf:
        return _exactly(bottom)
    if x.exact == math.inf:
        return _exactly(top)
    if x.exact is not None and x.finite and abs(x.exact) < 700:
        return _exactly(function(x.exact))
    return Range(Interval(bottom, top), True) if x.finite and math.isfinite(top) else UNKNOWN
