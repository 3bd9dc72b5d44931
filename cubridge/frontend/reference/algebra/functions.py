"""Functions of reals and integers that keep no normal form of their own: tanh, floor, maximum and the like."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import nonneg, real_nonneg
from cubridge.frontend.reference.algebra.numbers import (
    ceiling_of_ratio,
    floor_of_ratio,
    integral,
    number,
    split_product,
    to_int,
    to_real,
)
from cubridge.frontend.reference.algebra.reals import mul
from cubridge.frontend.reference.algebra.selection import push
from cubridge.frontend.reference.algebra.terms import Apply, Const, Sort, Term, apply, is_const, order


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: float(function(x)) if math.isfinite(x) else x


UNARY: Final[dict[str, Callable[[float], float]]] = {
    "tanh": math.tanh,
    "sigmoid": _logistic,
    "sin": _whole(math.sin),
    "cos": _whole(math.cos),
    "erf": math.erf,
    "abs": abs,
    "sign": lambda x: float((x > 0) - (x < 0)),
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "truncate": _whole(math.trunc),
    "round": _whole(round),
}
"""Functions of one real, with their values at numbers."""


_ODD: Final = frozenset(("tanh", "sin", "erf", "sign"))
_EVEN: Final = frozenset(("cos", "abs"))


def unary(op: str, x: Term) -> Term:
    x = to_real(x)
    pushed = push(lambda y: unary(op, y), x)
    if pushed is not None:
        return pushed
    if isinstance(x, Const):
        return number(UNARY[op](float(x.value)))
    whole = integral(x)
    if op in _ODD | _EVEN and split_product(x)[0] < 0:
        mirrored = unary(op, mul(number(-1.0), x))
        return mul(number(-1.0), mirrored) if op in _ODD else mirrored
    match op:
        case "floor" | "ceil" | "truncate" | "round" if whole is not None:
            return x
        case "floor" | "truncate":
            floor = floor_of_ratio(x)
            if floor is not None and (op == "floor" or nonneg(floor)):
                return to_real(floor)
        case "ceil":
            ceiling = ceiling_of_ratio(x)
            if ceiling is not None:
                return to_real(ceiling)
        case "abs" if whole is not None:
            return to_real(integers.absolute(whole))
        case "abs" if real_nonneg(x):
            return x
        case _:
            pass
    return apply(op, (x,), Sort.REAL)


def maximum(a: Term, b: Term) -> Term:
    return _extremum("max", a, b)


def minimum(a: Term, b: Term) -> Term:
    return _extremum("min", a, b)


def _extremum(op: str, a: Term, b: Term) -> Term:
    if a.sort is not Sort.REAL and b.sort is not Sort.REAL:
        a, b = to_int(a), to_int(b)
        pushed = push(lambda x, y: _extremum(op, x, y), a, b)
        return pushed if pushed is not None else (integers.maximum if op == "max" else integers.minimum)(a, b)
    a, b = to_real(a), to_real(b)
    whole_a, whole_b = integral(a), integral(b)
    if whole_a is not None and whole_b is not None:
        return to_real((integers.maximum if op == "max" else integers.minimum)(whole_a, whole_b))
    identity = -math.inf if op == "max" else math.inf
    for x, y in ((a, b), (b, a)):
        if is_const(x, identity):
            return y
        if isinstance(x, Const) and x.value == -identity:
            return x
    pushed = push(lambda x, y: _extremum(op, x, y), a, b)
    if pushed is not None:
        return pushed
    if isinstance(a, Const) and isinstance(b, Const):
        return number(max(a.value, b.value) if op == "max" else min(a.value, b.value))
    if op == "max" and any(is_const(x, 0) for x in (a, b)):
        other = b if is_const(a, 0) else a
        if real_nonneg(other):
            return other
    flat = [x for side in (a, b) for x in (side.args if isinstance(side, Apply) and side.op == op else (side,))]
    flat = sorted(dict.fromkeys(flat), key=order)
    return flat[0] if len(flat) == 1 else apply(op, tuple(flat), Sort.REAL)
