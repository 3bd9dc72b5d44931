from __future__ import annotations

import math

import pytest

from cubridge.ir.evaluate import evaluate
from cubridge.ir.nodes import Call, Expr, FloatLit
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from cubridge.ir.stable import stable
from cubridge.passes.pipeline import parse_text
from cubridge.passes.runner import run_pipeline
from tests.support.golden_texts import golden_kernel

FORMS = [
    ("log(1 + exp(x))", "maximum(x, 0.0) + log1p(exp(-abs(x)))"),
    ("log(exp(-x) + 1.0)", "maximum(-x, 0.0) + log1p(exp(-abs(-x)))"),
    ("log(1 + exp(-abs(x)))", "log1p(exp(-abs(x)))"),
    ("log1p(exp(x))", "maximum(x, 0.0) + log1p(exp(-abs(x)))"),
    ("log(1 + x * x)", "log1p(x * x)"),
    ("log(1 + 3 * exp(x))", "maximum(x + log(3), 0.0) + log1p(exp(-abs(x + log(3))))"),
    (
        "log((abs(i - j) + 1) * exp(x) + 1)",
        "maximum(x + log(abs(i - j) + 1), 0.0) + log1p(exp(-abs(x + log(abs(i - j) + 1))))",
    ),
    ("log(1 + x * exp(x))", "log1p(x * exp(x))"),
    ("exp(x) - 1", "expm1(x)"),
    ("exp(x) + 1", "exp(x) + 1"),
    ("x * (erf(x) + 1) / 2", "x * erfc(-x) / 2"),
    ("1 + erf(x)", "erfc(-x)"),
    ("(x * x + 1.0) ** 0.3", "exp(0.3 * log(x * x + 1.0))"),
    ("x * 2.0 ** 0.5", "x * 2.0 ** 0.5"),
    ("log(2 + exp(x))", "log(2 + exp(x))"),
]


@pytest.mark.parametrize(("text", "expected"), FORMS)
def test_forms(text: str, expected: str) -> None:
    assert print_expr(stable(parse_expr(text))) == expected


@pytest.mark.parametrize("text", [t for t, _ in FORMS])
@pytest.mark.parametrize("x", [-3.0, -0.2, 0.0, 0.7, 5.0])
def test_the_value_stays(text: str, x: float) -> None:
    expr = parse_expr(text)
    assert math.isclose(_value(stable(expr), x), _value(expr, x), rel_tol=1e-12, abs_tol=1e-15)


@pytest.mark.parametrize("x", [-40.0, 800.0])
def test_small_and_large_results_survive(x: float) -> None:
    expr = stable(parse_expr("log(1 + exp(x))"))
    assert math.isclose(_value(expr, x), math.exp(x) if x < 0 else x, rel_tol=1e-12)


def _value(expr: Expr, x: float) -> float:
    return evaluate(expr, lambda _: x)  # pyright: ignore


def test_weights_take_the_stable_form() -> None:
    text = 'rewrite-normalize{weight="log(exp(x) + 1)",finalize="acc / Lk"},approximate'
    kernel = run_pipeline(golden_kernel("sm80"), parse_text(text))
    (probs,) = kernel.region("row_probs").body
    calls = {n.fn for n in _walk(probs) if isinstance(n, Call)}
    assert "log1p_unit" in calls and "log2" not in calls
    assert not any(isinstance(n, FloatLit) and n.value == 1.0 for n in _walk(probs))


def _walk(node: object) -> list[object]:
    from cubridge.ir.walk import walk

    return list(walk(node))  # pyright: ignore
