"""Pairs of formulas, and numbers that show whether the prover is right about them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Final

from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Binary, Call, Expr, FloatLit, Unary
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from cubridge.ir.walk import map_children, walk
from cubridge.judge.proof.cases import Cases
from cubridge.judge.proof.evaluator import Evaluator
from cubridge.judge.proof.formulas import Formulas, Ratio
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.unproved import Unproved

LEAVES: Final = ("x", "y", "2.0", "0.5", "3.0", "D")
UNARY: Final = ("-(%s)", "exp(%s)", "tanh(%s)", "abs(%s)", "(%s) ** 2", "exp2(%s)", "rcp(%s)", "erfc(%s)", "(%s) ** -1")
BINARY: Final = ("(%s) + (%s)", "(%s) - (%s)", "(%s) * (%s)", "(%s) / (%s)", "maximum(%s, %s)", "minimum(%s, %s)",
                 "where((%s) < 1.0, %s, 0.0)")  # fmt: skip
SAME: Final = (
    ("maximum(x, y)", "where(x > y, x, y)"), ("abs(x)", "maximum(x, -x)"), ("exp(x + y)", "exp(x) * exp(y)"),
    ("tanh(-x)", "-tanh(x)"), ("(x + y) ** 2", "x * x + 2.0 * x * y + y * y"), ("1.0 / (1.0 + exp(-x))", "exp(x) / (1.0 + exp(x))"),
    ("log(exp(x) * 2.0)", "x + log(2.0)"), ("minimum(x, y)", "x + y - maximum(x, y)"), ("sqrt(D) * rsqrt(D)", "1.0"),
    ("exp2(x)", "exp(x * LN2)"), ("log2(exp2(y))", "y"), ("(x * x - y * y) / (x - y)", "x + y"),
    ("exp(log(D) * 0.5)", "D ** 0.5"), ("minimum(30.0 * tanh(x / 30.0), 100.0)", "30.0 * tanh(x / 30.0)"),
    ("maximum(D, 1.0)", "D"), ("abs(1.0 + erf(x))", "1.0 + erf(x)"), ("maximum(D * cos(x), -300.0)", "D * cos(x)"),
    ("abs(x) * abs(x)", "x * x"), ("cos(x)", "cos(0.0 + x)"),
)  # fmt: skip
DIFFERENT: Final = (
    ("exp(x + y)", "exp(x) + exp(y)"), ("tanh(-x)", "tanh(x)"), ("cos(-x)", "-cos(x)"), ("(x ** 2) ** 0.5", "x"),
    ("abs(x)", "x"), ("maximum(x, 1.0)", "x"), ("maximum(x, y)", "x"), ("log(exp(x) * 2.0)", "x + 2.0"),
    ("1.0 / (x + y)", "1.0 / x + 1.0 / y"), ("erf(x)", "tanh(x)"), ("erfc(x)", "1.0 + erf(x)"), ("exp2(x)", "exp(x)"),
    ("where(x < y, x, 0.0)", "where(x > y, x, 0.0)"), ("x / 3.0", "x * 0.333333"), ("D ** 0.5", "D"), ("x * x", "2.0 * x"),
    ("minimum(30.0 * tanh(x), 20.0)", "30.0 * tanh(x)"), ("maximum(D, 65.0)", "D"),
    ("abs(1.0 + tanh(x) * 2.0)", "1.0 + tanh(x) * 2.0"),
    ("where(x > 0.0, 1.0, 0.0)", "1.0"), ("minimum(x, 100.0)", "x"), ("x", "-x"), ("(x + y) * 2.0", "x + y * 2.0"),
)  # fmt: skip
POINTS: Final = ((0.7, -1.3), (-0.4, 2.2), (3.1, 0.2), (150.0, -150.0), (-2.5, -2.5), (1.0, 0.0))


def proved(left: Expr, right: Expr) -> bool:
    """Does the prover say that two formulas of x, y and D are equal."""
    formulas = Formulas(Cases(), Integers({}, 64))
    names = {name: formulas.symbol(name) for name in ("x", "y")}

    def equal() -> bool:
        try:
            a, b = (Evaluator(formulas, names, device=False).value(e) for e in (left, right))
        except Unproved:
            return formulas.is_impossible()
        same = formulas.equal(a, b) if isinstance(a, Ratio) and isinstance(b, Ratio) else a == b
        return same or formulas.is_impossible()

    try:
        return all([*formulas.cases.runs(equal)])
    except Unproved:
        return False


def differ(left: Expr, right: Expr) -> bool:
    """Is there a point at which both have a value, and another one."""
    for x, y in POINTS:
        try:
            a, b = (float(evaluate_number(e, {"x": x, "y": y, "D": 64})) for e in (left, right))  # pyright: ignore
        except CuError:
            continue
        if math.isfinite(a) and math.isfinite(b) and abs(a - b) > 1e-7 * (1.0 + abs(a) + abs(b)):
            return True
    return False


def pairs(seed: int, count: int) -> Iterator[tuple[Expr, Expr]]:
    """Formulas beside others that are made from them by a change or a law."""
    random = Random(seed)
    for _ in range(count):
        expr = parse_expr(_formula(random, 3))
        yield expr, _varied(expr, random)


def _formula(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.2:
        return random.choice(LEAVES)
    if random.random() < 0.4:
        return random.choice(UNARY) % _formula(random, depth - 1)
    return random.choice(BINARY) % (_formula(random, depth - 1), _formula(random, depth - 1))


def _varied(expr: Expr, random: Random) -> Expr:
    """With one place changed, to something that is often the same and often not."""
    places = [n for n in walk(expr) if isinstance(n, Expr)]
    place = random.choice(places)
    new = _changed(place, random)

    def change(node: Expr) -> Expr:
        return new if node is place else map_children(node, lambda x: change(x) if isinstance(x, Expr) else x)

    return change(expr)


def _changed(expr: Expr, random: Random) -> Expr:
    match expr:
        case Binary("+" | "*" as op, left, right):
            return random.choice((Binary(op, right, left), Binary("-", left, right)))
        case Binary(op, left, right):
            return random.choice((Binary(op, right, left), Unary("-", Unary("-", expr))))
        case Call("maximum" | "minimum" as fn, (left, right)):
            other = "minimum" if fn == "maximum" else "maximum"
            mirrored = Unary("-", Call(other, (Unary("-", left), Unary("-", right))))
            return random.choice((mirrored, Call(other, (left, right)), Call(fn, (right, left))))
        case Call(fn, (operand,)):
            return random.choice((Call(fn, (Unary("-", operand),)), Binary("*", expr, FloatLit(1.0))))
        case _:
            return random.choice((Binary("+", expr, expr), Binary("-", Binary("*", FloatLit(2.0), expr), expr)))


def false_proofs(seed: int = 0, count: int = 150) -> list[str]:
    """What is proved and not so: empty for a sound prover."""
    wrong = ((parse_expr(a), parse_expr(b)) for a, b in DIFFERENT)
    tried = [*wrong, *pairs(seed, count)]
    return [f"{print_expr(a)} == {print_expr(b)}" for a, b in tried if differ(a, b) and proved(a, b)]
