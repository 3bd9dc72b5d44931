from __future__ import annotations

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Global, Kernel, TensorMap
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_stmts
from cubridge.ir.types import DType
from cubridge.ir.walk import rewrite
from cubridge.passes.limits import is_zero_when_masked
from cubridge.passes.pipeline import parse_text
from cubridge.passes.runner import run_pipeline
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel

SOFTMAX = 'weight="exp(x - m)",finalize="acc / l",rows="l = sum of exp(x - m)"'


def run(options: str, kernel: Kernel | None = None, then: str = "") -> Kernel:
    return run_pipeline(kernel or golden_kernel("sm80"), parse_text(f"rewrite-normalize{{{options}}}{then}"))


def region(kernel: Kernel, name: str) -> list[str]:
    return print_stmts(kernel.region(name).body).split("\n")


def state(kernel: Kernel) -> list[str]:
    return [f.name for f in kernel.row_state]


@pytest.mark.parametrize("arch", GOLDEN_NAMES)
@pytest.mark.parametrize(
    "options",
    [
        SOFTMAX,
        SOFTMAX + ',lse="m + log(l)"',
        SOFTMAX + ',lse="log(l) + m"',
        'weight="exp(-m + x)",finalize="acc * (1 / total)",rows="total = sum of exp(x - m)"',
    ],
)
def test_a_softmax_gives_the_source_back(options: str, arch: str) -> None:
    kernel = golden_kernel(arch)
    assert run(options, kernel) is kernel


def test_an_elementwise_weight_keeps_no_row_state() -> None:
    kernel = run('weight="1 / (1 + exp(-x - 2))",finalize="acc"', then=",approximate")
    assert state(kernel) == []
    for name in ("row_init", "row_update", "row_rescale"):
        assert region(kernel, name) == ["pass"]
    assert region(kernel, "row_probs") == ["s = rcp(1.0 + exp2(-(s * p.exponent_scale) - p.weight_bias))"]
    assert region(kernel, "row_finalize") == ["lse = nan"]


@pytest.mark.parametrize(
    ("weight", "probs"),
    [
        ("log(1 + exp(x))", "maximum(s, 0.0) * p.weight_scale + log1p_unit(exp2(-(abs(s) * p.exponent_scale)))"),
        ("log(1 + x * x)", "where(s == -inf, 0.0, log1p(s * p.weight_scale * s))"),
    ],
)
def test_logarithms_near_1(weight: str, probs: str) -> None:
    """`log1pf` branches; where the argument lies between 0 and 1, `log1p_unit` does not."""
    kernel = run(f'weight="{weight}",finalize="acc"', then=",approximate")
    assert region(kernel, "row_probs") == [f"s = {probs}"]


def test_a_constant_factor_of_the_weight_waits_for_the_output() -> None:
    kernel = run('weight="maximum(x, 0) / Lk",finalize="acc"')
    assert region(kernel, "row_probs") == ["s = maximum(s, 0.0)"]
    assert region(kernel, "row_finalize") == ["lse = nan", "o = o * p.output_scale"]


def test_fp16_weights_keep_the_unit_of_the_score() -> None:
    def narrow(node: object) -> object:
        if isinstance(node, Global | TensorMap) and node.dtype is DType.BF16:
            return type(node)(DType.F16, node.shape)
        return node

    kernel = run('weight="maximum(x, 0) / Lk",finalize="acc"', rewrite(golden_kernel("sm80"), narrow))  # pyright: ignore
    assert region(kernel, "row_probs") == ["s = maximum(s, 0.0) * p.weight_scale"]
    assert region(kernel, "row_finalize") == ["lse = nan", "o = o * p.output_scale"]


@pytest.mark.parametrize(
    ("weight", "selected"),
    [
        ("maximum(x, 0)", False),
        ("maximum(x, 0) ** 2", False),
        ("1 / (1 + exp(-x))", False),
        ("exp(x)", False),
        ("where(x > 0, x, 0)", False),
        ("x / (1 + exp(-x))", True),
        ("tanh(x)", True),
        ("x", True),
        ("abs(x)", True),
        ("1 + 0 * x", True),
        ("maximum(x, 0) + 0.1", True),
    ],
)
def test_a_weight_is_0_where_the_score_is_masked(weight: str, selected: bool) -> None:
    (line, *_) = region(run(f'weight="{weight}",finalize="acc"'), "row_probs")
    assert line.startswith("s = where(s == -inf, 0.0, ") is selected


@pytest.mark.parametrize(
    ("text", "zero"),
    [
        ("maximum(x, 0.0)", True),
        ("exp(x)", True),
        ("exp(x) * f32(Lk)", True),
        ("1.0 / (1.0 + exp(2.0 - x))", True),
        ("1.0 / (1.0 + exp(log(Lk) - x))", True),
        ("exp(x + f32(i - j))", True),
        ("x * exp(x)", False),
        ("x - x", False),
        ("exp(p.bias[j] + x)", False),
        ("0.0 * x", False),
        ("1.0 / x", True),
        ("minimum(x, 0.0)", False),
        ("tanh(x) + 1.0", True),
        ("where(x < 0.0, 0.0, 1.0)", True),
        ("maximum(x, 0.0) + log1p(exp(-abs(x)))", True),
        ("exp(f32(j)) * maximum(x, 0.0)", False),
    ],
)
def test_limits_at_a_masked_score(text: str, zero: bool) -> None:
    assert is_zero_when_masked(parse_expr(text), {"x": float("-inf")}) is zero


def test_a_sink_is_added_after_the_lanes() -> None:
    kernel = run(SOFTMAX.replace("acc / l", "acc / (l + exp(2 - m))"))
    assert region(kernel, "row_probs") == region(golden_kernel("sm80"), "row_probs")
    assert region(kernel, "row_finalize") == [
        "m_log2 = row.m * p.exponent_scale",
        "top = maximum(m_log2, p.output_scale)",
        "top = where(top == -inf, 0.0, top)",
        "keep = exp2(m_log2 - top)",
        "l = add_lanes(row.l) * keep",
        "total = l + exp2(p.output_scale - top)",
        "inv = where(total == 0.0, 0.0, keep / total)",
        "lse = (top + log2(total)) * LN2",
        "o = o * inv",
    ]


PICK = "exp(x - m) - exp(-m)"


@pytest.mark.parametrize(
    ("total", "rows", "seen", "ends"),
    [
        ("l", "", "seen", ["l = add_lanes(row.l)"]),
        (
            "(l + 1e-6 * exp(maximum(r, 0) - m))",
            "; r = max of x",
            "r",
            [
                "l = add_lanes(row.l)",
                "r = row.r",
                "m_log2 = row.m * p.exponent_scale",
                "total = l + exp2(maximum(r, 0.0) * LOG2E - m_log2) * 1e-06",
            ],
        ),
    ],
)
def test_constants_beside_exponentials_let_the_maximum_begin_at_0(
    total: str, rows: str, seen: str, ends: list[str]
) -> None:
    """Rows that see no key are told by another maximum."""
    kernel = run(f'weight="maximum({PICK}, 0)",finalize="acc / {total}",rows="l = sum of abs({PICK}){rows}"')
    assert region(kernel, "row_init") == ["row.m = 0.0", "row.l = 0.0", f"row.{seen} = -inf"]
    assert region(kernel, "row_update")[-1].startswith(f"row.{seen} = maximum(row.{seen}, rowmax(")
    assert region(kernel, "row_probs") == [
        "u = exp2(-row.m_exponent)",
        "w = exp2(s * p.exponent_scale - row.m_exponent)",
        "row.l = row.l * row.o_scale + partial_rowsum(where(s == -inf, 0.0, abs(w - u)))",
        "s = where(s == -inf, 0.0, maximum(w - u, 0.0))",
    ]
    last = ends[-1].split(" ")[0]
    assert region(kernel, "row_finalize") == [
        *ends, f"inv = where(row.{seen} == -inf, 0.0, 1.0 / {last})", "lse = nan", "o = o * inv",
    ]  # fmt: skip


def test_a_second_sum_follows_the_maximum_as_often_as_it_must() -> None:
    rows = "l = sum of exp(x - m); q = sum of exp(x - m) ** 2; n = sum of 1"
    kernel = run(f'weight="exp(x - m)",finalize="acc / (q / l) / n",rows="{rows}"')
    assert state(kernel) == ["m", "l", "o_scale", "m_exponent", "q", "n"]
    assert region(kernel, "row_probs") == [
        "w = exp2(s * p.exponent_scale - row.m_exponent)",
        "row.q = row.q * row.o_scale * row.o_scale + partial_rowsum(w * w)",
        "row.n = row.n + partial_rowsum(where(s == -inf, 0.0, 1.0))",
        "s = w",
        "row.l = row.l * row.o_scale + partial_rowsum(s)",
    ]


def test_a_sum_that_is_not_used_is_dropped() -> None:
    kernel = run('weight="maximum(x, 0)",finalize="acc",rows="n = sum of maximum(x, 0)"')
    assert state(kernel) == []
    assert region(kernel, "row_init") == ["pass"]


def test_an_extremum_stands_beside_the_maximum() -> None:
    kernel = run('weight="exp(x - m)",finalize="acc / l + low",rows="l = sum of exp(x - m); low = min of x"')
    assert region(kernel, "row_init")[-1] == "row.low = inf"
    assert region(kernel, "row_update")[-1] == (
        "row.low = minimum(row.low, -rowmax(where(s == -inf, -inf, -(s * p.weight_scale))))"
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (SOFTMAX.replace('weight="exp(x - m)"', 'weight="exp(x - m) / l"'), "CU514"),
        (SOFTMAX.replace('weight="exp(x - m)"', 'weight="exp(2 * (x - m))"'), "CU514"),
        (SOFTMAX.replace('weight="exp(x - m)"', 'weight="exp(x - m) + 1"'), "CU514"),
        (SOFTMAX.replace('weight="exp(x - m)"', 'weight="x - m"'), "CU514"),
        (SOFTMAX.replace('weight="exp(x - m)"', 'weight="exp(x - m) * exp(-m)"'), "CU514"),
        (SOFTMAX.replace('weight="exp(x - m)"', 'weight="exp(x - m) - exp(-2 * m)"'), "CU514"),
        (SOFTMAX.replace("sum of exp(x - m)", "sum of exp(x - m) + 1"), "CU514"),
        (SOFTMAX.replace("acc / l", "acc / exp(2 * m)"), "CU514"),
        ('weight="exp(x - m)",finalize="acc / exp(r - m)",rows="r = max of x"', "CU514"),
        (SOFTMAX.replace("acc / l", "acc / r"), "CU505"),
        ('weight="s",finalize="acc"', "CU505"),
        ('weight="x // 2",finalize="acc"', "CU507"),
    ],
)
def test_what_no_single_sweep_computes(options: str, code: str) -> None:
    with pytest.raises(CuError) as raised:
        run(options)
    assert raised.value.diagnostics[0].code == code
    assert raised.value.exit_code == (4 if code == "CU514" else 1)
