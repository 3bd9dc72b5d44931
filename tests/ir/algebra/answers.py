"""The answers of the algebra held against enumeration: every fault is an answer that is wrong at some point."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np

from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Binary, Call, Expr, Name
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from tests.ir.algebra.corpus import DEFINITIONS, LEAST, MOST, Entry, corpus, values

Algebra = dict[str, Any]
"""Its modules by name."""


def faults(algebra: Algebra) -> Iterator[str]:
    """Wrong signs and wrong forms, as sentences."""
    for entry in corpus():
        yield from _sign_faults(algebra, entry)
        yield from _form_faults(algebra, entry)


def _sign_faults(algebra: Algebra, entry: Entry) -> Iterator[str]:
    facts = algebra["facts"].Facts(LEAST.get, MOST.get, DEFINITIONS.get)
    signs, sum_ = algebra["signs"], algebra["normal"].poly(entry.expr)
    if entry.low < 0 and (signs.is_natural(entry.expr, facts) or signs.nonnegative(sum_, facts)):
        yield f"`{print_expr(entry.expr)}` is {entry.low} somewhere, and never negative by its proof"
    for monomial, coefficient in sum_.terms:
        found = signs.opened(sum_, monomial, coefficient)
        if found is not None and entry.there.all():
            every, cases = found
            join = np.logical_and if every else np.logical_or
            shown = join(*(values(algebra["normal"].to_expr(c))[0] >= 0 for c in cases))
            if not np.array_equal(shown, entry.values >= 0):
                yield f"the cases of `{print_expr(entry.expr)}` are not its sign"


def _form_faults(algebra: Algebra, entry: Entry) -> Iterator[str]:
    """Sums that are equal as polynomials are equal, because each is equal to the one spelling of its polynomial."""
    spelled = algebra["normal"].normal(entry.expr)
    found, there = values(spelled)
    if not there[entry.there].all() or not np.array_equal(found[entry.there], entry.values[entry.there]):
        yield f"`{print_expr(entry.expr)}` is not `{print_expr(spelled)}`"


# ---- intervals -------------------------------------------------------------------------------------------------------

_MOST: Final = 3
_ENDS: Final = [(low, high) for low in range(-_MOST, _MOST + 1) for high in range(low, _MOST + 1)]
_UNARY: Final = (
    "abs",
    "i32",
    "i64",
    "floor",
    "ceil",
    "round",
    "f32",
    "sqrt",
    "rsqrt",
    "exp",
    "exp2",
    "tanh",
    "erf",
    "sin",
    "cos",
)
_OPERATORS: Final = ("+", "-", "*", "/", "//", "%", "**")
_BINARY: Final = (*_OPERATORS, "ceil_div", "floor_div", "floor_mod", "minimum", "maximum")


def image_faults(algebra: Algebra) -> Iterator[str]:
    """Each image against all values on small intervals, of which some also stand for those without an end."""
    for fn in (*_UNARY, *_BINARY):
        count = 1 if fn in _UNARY else 2
        points = product(range(-_MOST, _MOST + 1), repeat=count)
        table = np.array([_value(fn, p) for p in points]).reshape((2 * _MOST + 1,) * count)
        for ends in product(_ENDS, repeat=count):
            inside = table[tuple(slice(low + _MOST, high + _MOST + 1) for low, high in ends)]
            if not np.isnan(inside).all():
                yield from _image_faults(algebra, fn, ends, np.nanmin(inside), np.nanmax(inside))


def _value(fn: str, arguments: tuple[int, ...]) -> float:
    names = (Name("x"), Name("y"))[: len(arguments)]
    expr = Binary(fn, *names) if fn in _OPERATORS else Call(fn, names)
    return _number(expr, dict(zip("xy", arguments, strict=False)))


def _number(expr: Expr, names: dict[str, int]) -> float:
    """NaN where there is no value."""
    try:
        return float(evaluate_number(expr, names))  # pyright: ignore[reportArgumentType]
    except CuError:
        return math.nan


def _image_faults(
    algebra: Algebra, fn: str, ends: tuple[tuple[int, int], ...], least: float, most: float
) -> Iterator[str]:
    interval = algebra["interval"]
    without = [(low if low > -_MOST else -math.inf, high if high < _MOST else math.inf) for low, high in ends]
    for given in (ends, without):
        image = interval.image(fn, [interval.Interval(*e) for e in given], interval.REALS)
        if not image.low <= least <= most <= image.high:
            yield f"`{fn}` of {given} is {least} and {most}, and not in {image}"


_HOSTS: Final = (
    "Lq", "Lq - 1", "Lq - Lk", "Lq * Lk", "-Lq", "Lq // 2", "Lq / 2", "Lq / Lk", "f32(Lq) ** -0.5", "sqrt(Lq)", "rsqrt(Lq)",
    "LOG2E", "LOG2E - 2", "i32(Lq / 2)", "ceil(Lq / 2)", "floor(Lq / 2)", "i32(Lq * 0.75)", "ceil(Lq * 0.25) - 1", "Lq % 2",
    "minimum(Lq, Lk)", "maximum(Lq - Lk, 1)", "exp(-Lq)", "exp(Lq) - 1", "exp2(-Lq)", "Lq ** 2", "abs(Lq - Lk)", "unknown",
    "where(Lq < Lk, 1, 0)", "where(Lq < Lk, 1, 2)", "2 - Lq", "round(Lq * 0.3)", "Lq * unknown", "exp(unknown)",
)  # fmt: skip


def host_faults(algebra: Algebra) -> Iterator[str]:
    """Host expressions at small sizes."""
    for text in _HOSTS:
        expr, hosts = parse_expr(text), algebra["hosts"]
        points = ({"Lq": q, "Lk": k, "unknown": x} for q, k, x in product(range(1, 6), range(1, 6), (-2, 0, 2)))
        found = [v for p in points if not math.isnan(v := _number(expr, p))]
        lowest, least = min(found), algebra["facts"].least_of_host(expr)
        wrong = (hosts.is_positive(expr) and lowest <= 0) or (hosts.is_nonnegative(expr) and lowest < 0)
        if wrong or (least is not None and lowest < least):
            yield f"`{text}` is {lowest} somewhere"
