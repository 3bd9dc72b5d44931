"""Integer expressions with every value that they have on a grid: what each answer of the algebra is held against."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from cubridge.ir.nodes import Binary, BoolLit, Call, Expr, IntLit, Name, Unary
from cubridge.ir.parser import parse_expr
from cubridge.ir.walk import substitute

Numbers = npt.NDArray[np.int64]
Points = npt.NDArray[np.bool_]

_VALUES: Final = {"a": range(6), "b": range(4), "n": range(1, 4), "x": range(-4, 5)}
LEAST: Final[dict[Expr, int]] = {Name("a"): 0, Name("b"): 0, Name("n"): 1, Name("m"): 0}
"""Of `x` nothing is known."""
MOST: Final[dict[Expr, Expr]] = {Name("m"): parse_expr("a * n")}
DEFINITIONS: Final[dict[Expr, Expr]] = {
    Name("d"): parse_expr("maximum(a - b, 0)"),
    Name("f"): parse_expr("a // (n * b)"),
    Name("k"): IntLit(-2),
}

_BINARY: Final[dict[str, Callable[[Numbers, Numbers], Numbers]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "<": operator.lt, "==": operator.eq,
}  # fmt: skip
_CALLS: Final[dict[str, Callable[..., Numbers]]] = {
    "minimum": np.minimum, "maximum": np.maximum, "abs": np.abs, "where": np.where,
    "ceil_div": lambda a, b: -(-a // b), "floor_div": operator.floordiv, "floor_mod": operator.mod,
}  # fmt: skip
_DIVISIONS: Final = frozenset(("//", "%", "ceil_div", "floor_div", "floor_mod"))


@cache
def _grid() -> dict[str, Numbers]:
    """All values of the names; `m` is 0, 1 or the most that it may be."""
    columns = np.array([(*p, q) for p in product(*_VALUES.values()) for q in range(3)], dtype=np.int64).T
    names = dict(zip((*_VALUES, "q"), columns, strict=True))
    most = names["a"] * names["n"]
    return names | {"m": np.minimum(names["q"] * np.where(names["q"] == 2, most, 1), most)}


def values(expr: Expr) -> tuple[Numbers, Points]:
    """The value at each point of the grid, and where there is one: where nothing is divided by 0."""
    match expr:
        case IntLit(value) | BoolLit(value):
            return np.full_like(_grid()["a"], value), np.ones(_grid()["a"].shape, bool)
        case Name() if expr in DEFINITIONS:
            return values(DEFINITIONS[expr])
        case Name(name):
            return _grid()[name], np.ones(_grid()[name].shape, bool)
        case Unary("-", operand):
            inner, there = values(operand)
            return -inner, there
        case Binary(op, left, right):
            return _applied(op, _BINARY[op], (left, right))
        case Call(fn, args):
            return _applied(fn, _CALLS[fn], args)
        case _:
            raise AssertionError(expr)


def _applied(name: str, function: Callable[..., Numbers], args: tuple[Expr, ...]) -> tuple[Numbers, Points]:
    found = [values(a) for a in args]
    there = np.logical_and.reduce([t for _, t in found])
    if name not in _DIVISIONS:
        return function(*(v for v, _ in found)), there
    (value, _), (by, _) = found
    return function(value, np.where(by == 0, 1, by)), there & (by != 0)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """`low` and `high`: the least and the largest of the `values` that the expression has; `there`: the points where it has one."""

    expr: Expr
    low: int
    high: int
    values: Numbers
    there: Points


# ---- expressions -----------------------------------------------------------------------------------------------------

_PARTS: Final = (
    "a", "b", "n", "x", "m", "d", "f", "k", "a * n", "b * n", "a // 2", "a // n", "a // (n * b)", "x // n", "a // n * n",
    "a // (2 * n) * n", "x // n * n", "n * (a // b)", "a % n", "x % n", "a % b", "b % x", "minimum(a, b)", "maximum(a, b)",
    "maximum(x, 0)", "minimum(x, b)", "abs(x)", "abs(a - b)", "where(a < b, a, b)", "where(x < 0, 0, x)", "ceil_div(a, n)",
    "a * b", "x * x", "a ** 2", "n ** b", "2 * maximum(a, b)", "a * (b // n)", "m // n", "minimum(a, b) * n",
)  # fmt: skip
_NEAR: Final = (
    "k * k * k + 3", "a * x", "x * (n - 1) - x * (a % n)", "-((-a) // x)", "n * (a // n) - a + n - 2", "x - x // n",
    "n - 2 - a % n", "x - x % n", "n * minimum(x, b) - minimum(x, b) + 2", "a - x // n * n - n", "m - a", "1 - m", "-2 * x * n",
    "abs(x) - 2", "4 - abs(x - 1)", "2 - abs(x)", "minimum(x, a)", "3 - maximum(x, n)", "where(a < b, x, a)", "a // n - a // 2",
    "n * (a // n) - a", "minimum(a + 1, a) - 1", "abs(2 - x) - 1", "(2 * a + 1) // 2 - 1", "-2 * x - 3 * a",
    "where(x < 0, 2, x) - 1",
)  # fmt: skip
"""Each is negative somewhere, and would not be if a rule said a little more than it may."""

_DIFFERENCES: Final = ("X - Y + Z", "X + Y - Z", "2 * X - Y - Z", "n * X - Y + Z", "X * Y - Z")
_LEAVES: Final = (*"abnxmdfk", "2", "3", "-1")
_OPERATIONS: Final = (
    "X + Y", "X - Y", "X * Y", "X // Y", "X % Y", "minimum(X, Y)", "maximum(X, Y)", "abs(X)", "where(X < Y, Z, X)",
    "ceil_div(X, Y)", "-X",
)  # fmt: skip


def _family() -> Iterator[Expr]:
    """Differences of parts, a number more or less: where a proof that is off by one says something wrong."""
    parts, shapes = [parse_expr(p) for p in _PARTS], [parse_expr(d) for d in _DIFFERENCES]
    for x, y, shape, number in product(parts, parts, shapes, range(3)):
        yield substitute(shape, {"X": x, "Y": y, "Z": IntLit(number)})


def _random(rng: Random, depth: int) -> Expr:
    if depth == 0:
        return rng.choice(_parsed(_LEAVES))
    x, y, z = (_random(rng, rng.randrange(depth)) for _ in range(3))
    return substitute(rng.choice(_parsed(_OPERATIONS)), {"X": x, "Y": y, "Z": z})


@cache
def _parsed(texts: tuple[str, ...]) -> tuple[Expr, ...]:
    return tuple(map(parse_expr, texts))


@cache
def corpus() -> tuple[Entry, ...]:
    """Expressions that have a value somewhere."""
    rng = Random(8)
    exprs = [*_parsed(_NEAR), *rng.sample(list(_family()), 700), *(_random(rng, 4) for _ in range(400))]
    return tuple(_entries(exprs))


def _entries(exprs: list[Expr]) -> Iterator[Entry]:
    for expr in exprs:
        found, there = values(expr)
        if there.any():
            some = found[there]
            yield Entry(expr, int(some.min()), int(some.max()), found, there)
