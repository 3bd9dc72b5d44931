"""Random typed expressions of region code, from one source of randomness so that Hypothesis can shrink them."""

from __future__ import annotations

from random import Random
from typing import Final

from cubridge.ir.nodes import Attr, Binary, BoolLit, Call, Expr, FloatLit, IntLit, Name, Unary
from cubridge.ir.types import DType

TILE: Final = Name("tile")
INT_LEAVES: Final = (
    Name("i"), Name("j"), Name("Lq"), Name("Lk"), Name("BLOCK_KV"), Name("kv_start"), Attr(TILE, "h"), Attr(TILE, "q_start"),
)  # fmt: skip
FLOATS: Final = (-2.5, -1.0, -0.0, 0.0, 0.125, 0.3333333333333333, 1.0, 30.0, 1e-08, 65536.0)

VALUES: Final[dict[str, int | float]] = {
    "i": 37, "j": 70, "Lq": 193, "Lk": 130, "BLOCK_KV": 64, "kv_start": 64, "tile.h": 3, "tile.q_start": 32, "s": 0.75,
}  # fmt: skip
"""One value of every leaf, as tests evaluate them."""


def random_expr(rnd: Random, dtype: DType, depth: int) -> Expr:
    """An expression of `dtype` at most `depth` operators deep. Divisors are never 0."""
    if depth <= 0 or rnd.random() < 0.1:
        return _leaf(rnd, dtype)
    match dtype:
        case DType.I32:
            return _int(rnd, depth - 1)
        case DType.F32:
            return _float(rnd, depth - 1)
        case _:
            return _bool(rnd, depth - 1)


def _leaf(rnd: Random, dtype: DType) -> Expr:
    if dtype is DType.I32:
        return IntLit(rnd.randint(-9, 300)) if rnd.random() < 0.4 else rnd.choice(INT_LEAVES)
    if dtype is DType.F32:
        return FloatLit(rnd.choice(FLOATS)) if rnd.random() < 0.5 else Name("s")
    return BoolLit(rnd.random() < 0.5)


def _int(rnd: Random, depth: int) -> Expr:
    op = rnd.choice(("+", "-", "*", "//", "%", "maximum", "minimum", "abs", "where", "negate", "&", "^"))
    left = random_expr(rnd, DType.I32, depth)
    right = random_expr(rnd, DType.I32, depth)
    match op:
        case "//" | "%":
            return Binary(op, left, rnd.choice((IntLit(-7), IntLit(3), IntLit(64), Name("BLOCK_KV"))))
        case "*":
            return Binary(op, left, IntLit(rnd.randint(-4, 4)))
        case "negate":
            return Unary("-", left)
        case "abs":
            return Call("abs", (left,))
        case "where":
            return Call("where", (random_expr(rnd, DType.BOOL, depth), left, right))
        case "maximum" | "minimum":
            return Call(op, (left, right))
        case _:
            return Binary(op, left, right)


def _float(rnd: Random, depth: int) -> Expr:
    op = rnd.choice(("+", "-", "*", "/", "maximum", "minimum", "abs", "where", "negate", "f32"))
    left = random_expr(rnd, DType.F32, depth)
    right = random_expr(rnd, DType.F32, depth)
    match op:
        case "/":
            return Binary(op, left, rnd.choice((FloatLit(3.0), FloatLit(-0.5), IntLit(7))))
        case "f32":
            return Call("f32", (random_expr(rnd, DType.I32, depth),))
        case "negate":
            return Unary("-", left)
        case "abs":
            return Call("abs", (left,))
        case "where":
            return Call("where", (random_expr(rnd, DType.BOOL, depth), left, right))
        case "maximum" | "minimum":
            return Call(op, (left, right))
        case _:
            return Binary(op, left, right)


def _bool(rnd: Random, depth: int) -> Expr:
    op = rnd.choice(("<", "<=", ">", ">=", "==", "!=", "&", "|", "^", "~"))
    if op in ("&", "|", "^"):
        return Binary(op, random_expr(rnd, DType.BOOL, depth), random_expr(rnd, DType.BOOL, depth))
    if op == "~":
        return Unary("~", random_expr(rnd, DType.BOOL, depth))
    dtype = rnd.choice((DType.I32, DType.F32))
    return Binary(op, random_expr(rnd, dtype, depth), random_expr(rnd, dtype, depth))
