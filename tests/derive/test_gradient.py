"""What is derived from specs as text: the choices that are made, and what is refused. Its values are tested in `tests/engine`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cubridge.derive.explain import explain_gradient
from cubridge.derive.gradient import derive
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import AttentionSpec, Capture, RowReduction
from tests.passes.specs import elementwise, normalised, softmax
from tests.support.specs import softmax_spec

SIGMOID, SILU = "1 / (1 + exp(-x))", "x / (1 + exp(-x))"
CAP, BOTH_WAYS = "20 * tanh(s / 20)", "s * abs(s)"
SLOPES = {
    "a scale": (softmax("s * 0.1"), "constant", "dx", "0.1"),
    "a captured scale": (softmax("s * t / a[h]", captures="t f32; a f32 Hq"), "constant", "dx / a[h]", "t"),
    "a cap under a softmax": (softmax(CAP), "weight", "where(w > 0, dx * (1 - ((lse + log(w)) / 20) ** 2), 0)", "1"),
    "a cap and a constant": (softmax(f"{CAP} - 2"), "weight", "where(w > 0, dx * (1 - ((lse + log(w) + 2) / 20) ** 2), 0)", "1"),
    "a cap beside a bias, which may be large": (softmax(f"{CAP} + c[h]", captures="c f32 Hq"), "kept", "dx * slope", "1"),
    "a cap under a sigmoid, whose inverse loses": (elementwise(SIGMOID, score=CAP), "kept", "dx * slope", "1"),
    "a cap under a weight that keeps x": (elementwise(SILU, score=CAP), "score", "dx * (1 - (x / 20) ** 2)", "1"),
    "a score that does not say s": (softmax(BOTH_WAYS), "kept", "dx * slope", "1"),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOPES)
def test_where_the_slope_comes_from(name: str) -> None:
    spec, source, score_grad, scale = SLOPES[name]
    gradient = derive(spec)
    assert (gradient.slope_from, print_expr(gradient.score_grad)) == (source, score_grad)
    assert print_expr(gradient.dq_scale) == print_expr(gradient.dk_scale) == scale
    assert ("slope" in gradient.kept) == (source == "kept")
    assert ("x" in gradient.kept) == (source == "score")


SAVED = {
    "softmax": (softmax(), ("out", "lse"), "l"),
    "sink": (normalised("exp(x - m)", {"l": "sum exp(x - m)"}, "acc * 2 / (l + exp(1 - m))"), ("out", "lse"), "l + exp(1 - m)"),
    "a sum of other terms": (normalised("exp(x - m)", {"l": "sum 2 * exp(x - m)"}, "acc / l"), ("out", "lse"), "l"),
    "two divisors": (normalised("exp(x - m)", {"l": "sum exp(x - m)", "n": "sum 1"}, "acc / l / n"), ("out", "acc", "m", "l", "n"),
    None), "not linear": (normalised("exp(x - m)", {"l": "sum exp(x - m)"}, "acc / l + acc * acc / (l * l)"), ("acc", "m", "l"),
    None), "no row": (elementwise("maximum(x, 0)", "acc / Lk"), (), None),
    "a sum": (normalised("abs(x)", {"l": "sum abs(x)"}, "acc / l"), ("out", "l"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved(name: str) -> None:
    spec, saved, total = SAVED[name]
    gradient = derive(spec)
    assert (gradient.saved, gradient.total and print_expr(gradient.total)) == (saved, total)


def test_names_that_a_reference_has_too() -> None:
    """Captured values keep theirs."""
    captures = "w f32 Hq; dp f32; lse f32 B, Lk"
    text = explain_gradient(derive(softmax("s * dp * w[h] + lse[b, j]", captures=captures)))
    assert "w_ = exp(x - lse_)" in text
    assert "dx = w_ * (dp_ + dl)" in text
    assert "none of    w, dp, lse" in text


MAXIMUM = RowReduction("t", "max", parse_expr("True"), parse_expr("x"))
REFUSED: dict[str, tuple[AttentionSpec, str, str]] = {
    "a row maximum": (replace(softmax(), rows=(*softmax().rows, MAXIMUM), finalize=parse_expr("acc / l * t")), "CU531", "`t`"),
    "no derivative": (elementwise("x // 2"), "CU530", "`//`"),
    "weights that read a sum": (normalised("x / l", {"l": "sum abs(x)"}, "acc"), "CU514", "second sweep"),
    "a ReLU and a clamp": (replace(elementwise("maximum(x, 0)"), tie=None), "CU532", "bounds"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    spec, code, named = REFUSED[name]
    with pytest.raises(CuError) as error:
        derive(spec)
    assert error.value.diagnostics[0].code == code
    assert named in error.value.diagnostics[0].message
    assert error.value.exit_code == 4


def test_several_bounds_matter_only_where_scores_have_them() -> None:
    several = replace(softmax_spec(), tie=None)
    assert replace(derive(several), forward=softmax_spec()) == derive(softmax_spec())


def test_captures_of_floats_are_named() -> None:
    captures = tuple(Capture(n, "argument", (), d) for n, d in (("a", "f32"), ("i", "i32"), ("c", "bool")))  # pyright: ignore
    assert derive(softmax_spec(captures=captures)).still == ("a",)
