"""Derivatives of whole expressions: what they look like, and what has none."""

from __future__ import annotations

import pytest
import torch

from cubridge.ir.algebra.derivative import derivative
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr

TEXTS = {
    "s * D ** -0.5": "D ** -0.5",
    "30 * tanh(s / 30)": "30 * ((1 - tanh(s / 30) ** 2) / 30)",
    "exp(s - m)": "exp(s - m)",
    "1 / (1 + exp(-s))": "1 / (1 + exp(s)) / (1 + exp(-s))",
    "log(1 + exp(s))": "1 / (1 + exp(-s))",
    "maximum(s, 0) ** 2": "where(maximum(s, 0) > 0, 2 * maximum(s, 0), where(s == 0, maximum(s, 0), 0))",
    "where(j <= i, s * t, -1e9)": "where(j <= i, t, 0)",
    "where(s > 0, s, exp(s) - 1)": "where(s > 0, 1, exp(s))",
    "i - j": "0",
    "table[i - j]": "0",
    "2 ** s": "2 ** s * log(2)",
    "s ** 3 % 5": "3 * s ** 2",
    "f32(s > 0) + floor(s)": "0",
}


@pytest.mark.parametrize("text", TEXTS)
def test_derivative(text: str) -> None:
    assert print_expr(derivative(parse_expr(text), "s")) == TEXTS[text]


SMOOTH = (
    "s * exp(-s * s) / (2 + sin(s))",
    "(s - 3) * (s + erf(s)) - s / 4",
    "sqrt(2 + s * s) ** 0.3 - log1p(exp(-s))",
    "where(s < 0, s * s, expm1(s)) * minimum(s, 0.25)",
    "x ** s / rsqrt(2 + cos(s)) - erfc(-s) * tanh(2 * s)",
    "-(1 - abs(s)) * (-s)",
)


@pytest.mark.parametrize("text", SMOOTH)
@pytest.mark.parametrize("at", [-2.3, -0.4, 0.7, 1.9])
def test_derivative_is_the_limit_of_differences(text: str, at: float) -> None:
    expr = parse_expr(text)

    def value(s: float) -> float:
        return float(evaluate_number(expr, {"s": s, "x": 1.7}))

    slope = float(evaluate_number(derivative(expr, "s"), {"s": at, "x": 1.7}))
    assert slope == pytest.approx((value(at + 1e-6) - value(at - 1e-6)) / 2e-6, rel=1e-6, abs=1e-8)


def test_what_is_not_chosen_is_not_multiplied() -> None:
    """The branch that is dropped has an infinite derivative, and 0 * inf would be NaN."""
    slope = derivative(parse_expr("where(s > 1, sqrt(s - 1), 0) + sqrt(maximum(s, 0))"), "s")
    found = evaluate_number(slope, {"s": torch.tensor([-4.0, 1.0]).double()})
    assert found.tolist() == [0.0, 0.5]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_sigmoid_far_below_has_a_derivative() -> None:
    """exp(-s) is infinite there in fp64 tensors, and inf / inf is NaN."""
    slope = evaluate_number(
        derivative(parse_expr("1 / (1 + exp(-s))"), "s"), {"s": torch.tensor([-2000.0, 2000.0]).double()}
    )
    assert slope.tolist() == [0.0, 0.0]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("text", "named"), [("rowmax(s)", "`rowmax`"), ("s // 2", "`//`"), ("2 + floor_mod(s, 3)", "`floor_mod`")]
)
def test_what_has_no_derivative_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(CuError) as error:
        derivative(parse_expr(text), "s")
    assert error.value.diagnostics[0].code == "CU530"
    assert named in error.value.diagnostics[0].message
    assert error.value.diagnostics[0].span.text in text
