from __future__ import annotations

import pytest

from cubridge.ir.algebra.hosts import is_positive
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Kernel, Name, Scalar
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr, print_stmts
from cubridge.passes.pipeline import parse_text
from cubridge.passes.runner import run_pipeline
from cubridge.passes.scale import scale_of
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel


def run(text: str, arch: str = "sm80") -> Kernel:
    return run_pipeline(golden_kernel(arch), parse_text(text))


def score(kernel: Kernel) -> str:
    return print_stmts(kernel.region("score").body)


def hosts(kernel: Kernel) -> dict[str, str]:
    fields = (f for f in kernel.params if not f.fixed and isinstance(f.type, Scalar))
    return {f.name: print_expr(f.type.host) for f in fields if isinstance(f.type, Scalar) and f.type.host is not None}


@pytest.mark.parametrize("arch", GOLDEN_NAMES)
@pytest.mark.parametrize("spelling", ["s * D ** -0.5", "s / sqrt(D)", "s * rsqrt(D)", "s / D ** 0.5", "D ** -0.5 * s"])
def test_the_default_score_gives_the_source_back(spelling: str, arch: str) -> None:
    assert run(f'rewrite-score{{score="{spelling}"}},fold-scale', arch) == golden_kernel(arch)


FOLDED = [
    ("s", "pass", "LOG2E"),
    ("s * 0.125", "pass", "0.125 * LOG2E"),
    ("30 * tanh(s / 30)", "s = tanh(s * 0.03333333333333333)", "30.0 * LOG2E"),
    ("(s + (i - j)) * 0.5", "s = s + f32(i - j)", "0.5 * LOG2E"),
    ("s * 0.5 + (i - j)", "s = s + f32(i - j) * 2.0", "0.5 * LOG2E"),
    ("s * 0.5 + i - j", "s = s + f32(i - j) * 2.0", "0.5 * LOG2E"),
    ("s - log(Lk)", "s = s - p.score_bias", "LOG2E"),
    ("s ** 2", "s = s * s", "LOG2E"),
    ("maximum(s * 3, 0)", "s = maximum(s, 0.0)", "3.0 * LOG2E"),
]


@pytest.mark.parametrize(("text", "expected", "host"), FOLDED)
def test_the_outer_factor_folds_into_the_exponent(text: str, expected: str, host: str) -> None:
    kernel = run(f'rewrite-score{{score="{text}"}},fold-scale')
    assert score(kernel) == expected
    assert hosts(kernel)["exponent_scale"] == host


@pytest.mark.parametrize(
    ("text", "expected", "host"),
    [
        ("s * -2", "s = -s", "2.0 * LOG2E"),
        ("s * (Lk - Lq)", "s = s * p.score_scale", "LOG2E"),
        ("s * temperature", "s = s * p.temperature", "LOG2E"),
        ("temperature * tanh(s / temperature)", "s = tanh(s * p.score_scale) * p.temperature", "LOG2E"),
    ],
)
def test_a_factor_that_may_be_negative_stays_before_the_maximum(text: str, expected: str, host: str) -> None:
    kernel = run(f'bind-captured{{capture="temperature",dtype="f32"}},rewrite-score{{score="{text}"}},fold-scale')
    assert score(kernel) == expected
    assert hosts(kernel)["exponent_scale"] == host


@pytest.mark.parametrize(
    ("text", "expected", "host"),
    [
        ("s + t[j]", "s = s * LOG2E + p.t[j] * LOG2E", "1.0"),
        ("s * 0.5 + t[j]", "s = s + p.t[j] * 2.0", "0.5 * LOG2E"),
        ("s * D ** -0.5 + t[j]", "s = s + p.t[j] * p.t_scale", "D ** -0.5 * LOG2E"),
        ("s + t[i]", "s = s + p.t[i]", "LOG2E"),
    ],
)
def test_fills_of_captured_tensors_stay_fp32_numbers_in_the_exponent(text: str, expected: str, host: str) -> None:
    """What is added to scores may be the least number of fp32: a factor of 1 or less keeps it one."""
    kernel = run(f'bind-captured{{capture="t",dtype="f32",extents="Lk"}},rewrite-score{{score="{text}"}},fold-scale')
    assert (score(kernel), hosts(kernel)["exponent_scale"]) == (expected, host)


def test_parameters_are_shared_and_named_after_their_use() -> None:
    kernel = run('rewrite-score{score="(s + i) * D ** -0.5 + j * D ** -0.5"}')
    assert score(kernel) == "s = s * p.score_scale + f32(i) * p.score_scale + f32(j) * p.score_scale"
    assert hosts(kernel) == {"exponent_scale": "LOG2E", "score_scale": "D ** -0.5"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("s + table[h]", "CU505"),
        ("q + s", "CU505"),
        ("s < 3", None),
        ("s + x", "CU505"),
        ("rowmax(s)", "CU507"),
        ("s // 2", "CU507"),
        ("s / (Lq - Lq)", "CU507"),
        ("s + i % (Hk - Hk)", "CU507"),
        ("s + floor_mod(j, 0 * Lk)", "CU507"),
        ("s + ceil_div(i, (Lq + 1) * Lk - Lk - Lk * Lq)", "CU507"),
    ],
)
def test_what_a_score_cannot_be(text: str, code: str | None) -> None:
    if code is None:
        assert score(run(f'rewrite-score{{score="{text}"}}')) == "s = where(s < 3.0, 1.0, 0.0)"
        return
    with pytest.raises(CuError) as raised:
        run(f'rewrite-score{{score="{text}"}}')
    assert raised.value.diagnostics[0].code == code
    assert raised.value.diagnostics[0].span.file.name == "<pipeline>"


def test_the_score_comes_before_the_normalizer() -> None:
    with pytest.raises(CuError) as raised:
        run('rewrite-normalize{weight="maximum(x, 0)",finalize="acc"},rewrite-score{score="s"}')
    assert raised.value.diagnostics[0].code == "CU512"


@pytest.mark.parametrize(
    ("text", "printed", "positive"),
    [
        ("1 / D ** -0.5", "D ** 0.5", True),
        ("sqrt(D) * D ** -0.5", "1.0", True),
        ("2 / 3", "2.0 / 3.0", True),
        ("0.1 * 10", "1.0", True),
        ("1 / 30", "1.0 / 30.0", True),
        ("-4 * LOG2E", "-4.0 * LOG2E", False),
        ("(Lk - Lq) / (Lk - Lq)", "1.0", False),
        ("cap / D", "cap / D", False),
        ("log(Lk) * LOG2E", "log(Lk) * LOG2E", False),
        ("(Lk + 1) ** -0.5", "(Lk + 1) ** -0.5", True),
        ("sqrt(cap * cap)", "sqrt(cap * cap)", False),
        ("(cap * 2) ** 2", "4.0 * cap ** 2.0", False),
        ("exp(cap)", "exp(cap)", True),
    ],
)  # fmt: skip
def test_host_factors(text: str, printed: str, positive: bool) -> None:
    scale = scale_of(parse_expr(text))
    assert print_expr(scale.to_expr()) == printed
    assert (scale.coefficient > 0 and all(is_positive(b) for b, _ in scale.powers)) is (positive or not scale.powers)


def test_a_size_alone_is_no_alias() -> None:
    kernel = run('rewrite-score{score="s + Lk"}')
    assert hosts(kernel)["score_bias"] == "1.0 * Lk"
    assert Name("Lk") not in [f.type.host for f in kernel.params if not f.fixed and isinstance(f.type, Scalar)]
