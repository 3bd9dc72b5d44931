"""What integers grow to is above them, by numbers."""

from __future__ import annotations

from itertools import product

import pytest

from cubridge.ir.algebra.growth import dominates, growth
from cubridge.ir.algebra.normal import poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Expr, Name
from cubridge.ir.parser import parse_expr

TOPS = {"i": Poly.atom(Name("Lq")) + 7, "j": Poly.atom(Name("Lk")) * 2}


def grown(text: str) -> Poly | None:
    return growth(parse_expr(text), of)


def of(expr: Expr) -> Poly | None:
    return TOPS.get(expr.id, Poly.atom(expr)) if isinstance(expr, Name) and expr.id != "s" else None


@pytest.mark.parametrize(
    "text",
    [
        "i * Lk - j * Lq",
        "-(i * j) // 3 - 1",
        "abs(j - i) % Lk + i // Lq",
        "where(i < j, i * i, -j) * minimum(i, 5)",
        "j // (Lk // Lq + 1) * (Lk // Lq + 1) - i",
        "(i - 3) ** 3 + ceil_div(j * 5, Lk)",
        "maximum(i, 3 - j) * floor_mod(-i, 5) - floor_div(-j, Lq)",
    ],
)
def test_no_integer_passes_its_growth(text: str) -> None:
    most = grown(text)
    assert most is not None and all(c > 0 for _, c in most.terms)
    reached = 0
    for lq, lk in product((1, 2, 5), repeat=2):
        sizes = {"Lq": lq, "Lk": lk}
        top = evaluate_number(to_expr(most), sizes)
        for i, j in product(range(lq + 8), range(2 * lk + 1)):
            value = abs(evaluate_number(parse_expr(text), {**sizes, "i": i, "j": j}))
            reached = max(reached, int(value / top * 100))
            assert value <= top, (text, sizes, i, j)
    assert reached > 10


def test_of_what_nothing_is_known_there_is_none() -> None:
    assert [grown(x) for x in ("s * i", "i32(i * 0.5)", "i ** j", "where(i < j, s, i)")] == [None] * 4
    assert grown("s % Lk") == Poly.atom(Name("Lk"))
    whole = grown("i // Lk * Lk")
    assert whole is not None and whole.equals(poly(parse_expr("Lq + Lk + 7")))


@pytest.mark.parametrize(
    ("most", "value", "answer"),
    [
        ("Lq * Lk + 5 * Lk", "Lq * Lk + 3 * Lk", True),
        ("Lq * Lk + 5 * Lk", "Lq * Lk + Lk + 4", True),
        ("Lq * Lk + 5 * Lk", "Lq * Lk + Lk + 5", False),
        ("Lq * Lk + 5 * Lk", "Lq * Lk + Lq", False),
        ("3 * Lq * Lk", "Lq * Lk + Lq + Lk", True),
        ("3 * Lq * Lk", "Lq * Lk + Lq + Lk + 1", False),
        ("Lq * Lq", "Lq * Lk", False),
        ("Lq - Lk", "1", False),
    ],
)
def test_one_polynomial_is_above_another(most: str, value: str, answer: bool) -> None:
    above, below = poly(parse_expr(most)), poly(parse_expr(value))
    assert dominates(above, below) == answer
    if answer:
        for lq, lk in product((1, 3, 10), repeat=2):
            sizes = {"Lq": lq, "Lk": lk}
            assert evaluate_number(to_expr(above - below), sizes) >= 0
