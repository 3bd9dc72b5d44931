"""Folded expressions have the values of those that they were."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.ir.algebra.arithmetic import folded
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Binary, Call, Expr, FloatLit, IntLit, Name, Unary
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr

FOLDED = {
    "x + 0": "x",
    "0 - (x - y)": "y - x",
    "1 * x / 1": "x",
    "x * -1": "-x",
    "-x * -y": "x * y",
    "x - -y": "x + y",
    "2 * (3 * x)": "6 * x",
    "0.5 + 0.5": "1",
    "where(c, 1, 0) * exp(x)": "where(c, exp(x), 0)",
    "where(c, x, 0) + where(c, 0, y)": "where(c, x, y)",
    "where(c, 1, where(d, 0.5, 0)) * x": "where(c, x, where(d, 0.5 * x, 0))",
    "exp(x) / (1 + exp(x))": "1 / (1 + exp(-x))",
    "exp(-x) / (exp(-x) + 1)": "1 / (1 + exp(x))",
    "log(1) + x": "x",
    "x - x": "x - x",
    "0 / x": "0",
}


@pytest.mark.parametrize("text", FOLDED)
def test_folded(text: str) -> None:
    assert print_expr(folded(parse_expr(text))) == FOLDED[text]


NUMBERS = st.one_of(st.integers(-2, 2).map(IntLit), st.sampled_from([-0.5, 0.25, 1.0]).map(FloatLit))
CONDITION = Binary(">", Name("x"), Name("y"))


def _grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Binary, st.sampled_from("+-*/"), inner, inner),
        st.builds(Unary, st.just("-"), inner),
        st.builds(lambda a, b: Call("where", (CONDITION, a, b)), inner, inner),
        st.builds(lambda a: Call("exp", (a,)), inner),
    )


@given(
    st.recursive(st.one_of(NUMBERS, st.sampled_from([Name("x"), Name("y")])), _grown, max_leaves=8),
    st.sampled_from([-1.5, 0.75, 2.0]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_values_stay(expr: Expr, x: float) -> None:
    values = {"x": x, "y": 0.5}
    try:
        before = float(evaluate_number(expr, values))
    except Exception:  # no value: a quotient of 0, an exponential beyond a float
        return
    assert math.isclose(float(evaluate_number(folded(expr), values)), before, rel_tol=1e-9, abs_tol=1e-12)
