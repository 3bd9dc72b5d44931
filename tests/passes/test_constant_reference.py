"""Softmax without a row maximum, where intervals show that scores have bounds."""

from __future__ import annotations

import math

import pytest

from cubridge.ir.nodes import Global, Kernel, TensorMap
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_field_type, print_stmts
from cubridge.ir.types import DType
from cubridge.ir.walk import rewrite
from cubridge.passes.pipeline import parse_text
from cubridge.passes.propose import propose
from cubridge.passes.runner import run_pipeline
from cubridge.passes.score_range import score_range
from tests.passes.specs import normalised, softmax
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel

CAP = "{0} * tanh(s * D ** -0.5 / {0})"


def narrow(kernel: Kernel) -> Kernel:
    """The kernel in fp16."""

    def change(node: object) -> object:
        is_half = isinstance(node, Global | TensorMap) and node.dtype is DType.BF16
        return type(node)(DType.F16, node.shape) if is_half else node

    return rewrite(kernel, change)  # pyright: ignore


def target(score: str, kernel: Kernel | None = None) -> Kernel:
    kernel = kernel or golden_kernel("sm80")
    return run_pipeline(kernel, propose(softmax(score, "j <= i"), kernel))


def region(kernel: Kernel, name: str) -> list[str]:
    return print_stmts(kernel.region(name).body).split("\n")


@pytest.mark.parametrize(
    ("score", "low", "high"),
    [
        ("30 * tanh(s / 30)", -30, 30),
        ("30 * tanh((s + slope[h] * (j - i)) / 30)", -30, 30),
        ("minimum(maximum(s, -4.0), 10.0)", -4, 10),
        ("minimum(maximum(10.0 - s, 0.0), 10.0) - 1", -1, 9),
        ("where(j <= i, 20 * erf(s), -20)", -20, 20),
        ("where(j <= i, tanh(s), -inf)", -1, 1),
        ("where(j <= i, -inf, tanh(s))", -1, 1),
        ("2 * sin(s) - cos(s)", -3, 3),
        ("s", -math.inf, math.inf),
        ("cap * tanh(s / cap)", -math.inf, math.inf),
        ("D * tanh(s)", -math.inf, math.inf),
        ("tanh(s) + i", -1, math.inf),
        ("tanh(s) + bias[j]", -math.inf, math.inf),
        ("where(j < 9, tanh(s), s)", -math.inf, math.inf),
        ("maximum(s, -4.0)", -4, math.inf),
    ],
)
def test_ranges_of_scores(score: str, low: float, high: float) -> None:
    found = score_range(parse_expr(score))
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize("arch", GOLDEN_NAMES)
def test_a_capped_score_needs_no_maximum(arch: str) -> None:
    kernel = target(CAP.format(30), golden_kernel(arch))
    assert [f.name for f in kernel.row_state] == ["l"]
    assert region(kernel, "row_update") == region(kernel, "row_rescale") == ["pass"]
    assert region(kernel, "row_probs") == ["s = exp2(s * p.exponent_scale)", "row.l = row.l + partial_rowsum(s)"]
    assert region(kernel, "row_finalize")[2] == "lse = where(l == 0.0, -inf, log2(l) * LN2)"


def test_the_reference_is_the_middle_of_the_scores() -> None:
    kernel = target("minimum(maximum(s * D ** -0.5, -4.0), 10.0)")
    assert region(kernel, "row_probs")[0] == "s = exp2(s * p.exponent_scale - p.weight_bias)"
    assert region(kernel, "row_finalize")[2] == "lse = where(l == 0.0, -inf, (p.weight_bias + log2(l)) * LN2)"
    (bias,) = (f.type for f in kernel.params if f.name == "weight_bias")
    assert print_field_type(bias) == "Scalar(f32, host=3.0 * LOG2E)"


@pytest.mark.parametrize(
    ("score", "is_narrow", "constant"),
    [
        (CAP.format(38), False, True),
        (CAP.format(39), False, False),
        (CAP.format(50), False, False),
        (CAP.format(30), True, False),
        (CAP.format(9), True, True),
        (CAP.format(10), True, False),
        ("minimum(maximum(s, 0.0), 19.0)", True, True),
        ("minimum(maximum(s, 0.0), 20.0)", True, False),
        ("maximum(s, -4.0)", False, False),
    ],
)
def test_weights_must_be_within_their_format(score: str, is_narrow: bool, constant: bool) -> None:
    kernel = golden_kernel("sm80")
    kernel = target(score, narrow(kernel) if is_narrow else kernel)
    assert ([f.name for f in kernel.row_state] == ["l"]) is constant


def test_a_maximum_that_the_output_asks_for_stays() -> None:
    """A sink is weighed against the constant; a maximum of the row is one of its own."""
    kernel = golden_kernel("sm80")
    spec = normalised(
        "exp(x - m)", {"l": "sum exp(x - m)"}, "acc / (l + exp(z[h] - m))", score=CAP.format(20), captures="z f32 Hq"
    )
    sink = run_pipeline(kernel, propose(spec, kernel))
    assert [f.name for f in sink.row_state] == ["l"]
    assert region(sink, "row_finalize")[:2] == ["m_log2 = 0.0", "top = maximum(m_log2, tile.z)"]
    spec = normalised("exp(x - m)", {"l": "sum exp(x - m)", "r": "max x"}, "acc / l * r", score=CAP.format(20))
    assert "r" in [f.name for f in run_pipeline(kernel, propose(spec, kernel)).row_state]


def test_without_bounds_the_kernel_stays() -> None:
    text = 'rewrite-score{score="s * 0.5"},fold-scale'
    kernel = run_pipeline(golden_kernel("sm80"), parse_text(text))
    assert run_pipeline(kernel, parse_text("constant-reference")) is kernel
