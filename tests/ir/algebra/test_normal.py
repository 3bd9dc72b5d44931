from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import compared, normal, poly
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.algebra.signs import at_most, nonnegative
from cubridge.ir.nodes import Expr, IntLit, Name
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from tests.passes.strategies import integers, value

LEAST: dict[Expr, int] = {Name("i"): 0, Name("j"): 0, Name("Lq"): 1, Name("Lk"): 1, Name("n"): 1}
FACTS = Facts(LEAST.get)
_index, _length = st.integers(0, 50), st.integers(1, 50)
_points = st.fixed_dictionaries({"i": _index, "j": _index, "Lq": _length, "Lk": _length})


@given(integers, _points)
@settings(max_examples=300, deadline=None)
def test_normal_form_keeps_the_value(expr: Expr, point: dict[str, int]) -> None:
    assert value(normal(expr), point) == value(expr, point)


@given(integers, _points)
@settings(max_examples=300, deadline=None)
def test_what_is_proved_holds(expr: Expr, point: dict[str, int]) -> None:
    if nonnegative(poly(expr), FACTS):
        assert value(expr, point) >= 0


@given(integers, integers, _points)
@settings(max_examples=200, deadline=None)
def test_comparison_with_zero_keeps_its_meaning(left: Expr, right: Expr, point: dict[str, int]) -> None:
    difference = value(left, point) - value(right, point)
    for op, holds in (("<", difference < 0), ("<=", difference <= 0), (">", difference > 0), (">=", difference >= 0)):
        assert bool(value(compared(op, poly(left) - poly(right)), point)) == holds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i + (Lk - Lq)", "i + Lk - Lq"),
        ("-Lq + i + Lk - 1 + 1", "i + Lk - Lq"),
        ("2 * (i + 3) - i", "i + 6"),
        ("(4 * i + 7) // 4", "i + 1"),
        ("(4 * i + j) // 4", "i + j // 4"),
        ("(4 * i + j) % 4", "j % 4"),
        ("minimum(i + 3, i + 5)", "i + 3"),
        ("abs(j - i)", "abs(j - i)"),
        ("abs(-i)", "abs(i)"),
        ("(Lq // 4) * (Lq // 4)", "Lq // 4 * (Lq // 4)"),
        ("3 - i", "-i + 3"),
    ],
)
def test_spellings(text: str, expected: str) -> None:
    assert print_expr(normal(parse_expr(text))) == expected


@pytest.mark.parametrize(
    ("text", "proved"),
    [
        ("i", True),
        ("Lk - 1", True),
        ("Lk - Lq", False),
        ("i - 1", False),
        ("maximum(i - 5, 0)", True),
        ("minimum(i, j) + 1", True),
        ("i - (i // 4) * 4", True),
        ("4 * (i // 4) + 4 - i - 1", True),
        ("4 * (i // 4) + 3 - i - 1", False),
        ("n * (i // n) + n - 1 - i", True),
        ("3 - i % 4", True),
        ("2 - i % 4", False),
        ("maximum(minimum(i - j, 7), -7) + 7", True),
        ("7 - maximum(minimum(i - j, 7), -7)", True),
        ("maximum(Lq, Lk) - Lk", True),
        ("Lk - minimum(Lq, Lk)", True),
        ("abs(i - j)", True),
        ("i - abs(i)", True),
        ("i - abs(i - j)", False),
    ],
)  # fmt: skip
def test_proofs(text: str, proved: bool) -> None:
    assert nonnegative(poly(parse_expr(text)), FACTS) is proved


def test_constants_hold_for_one_instantiation_only() -> None:
    block = Poly.atom(Name("BLOCK_KV"))
    least: dict[Expr, int] = {Name("BLOCK_KV"): 1}
    constants: dict[Expr, Expr] = {Name("BLOCK_KV"): IntLit(64)}
    assert not at_most(Poly.constant(20), block, Facts(least.get))
    assert at_most(Poly.constant(20), block, Facts(definition=constants.get))
