"""Variants composed at random: any score with any mask with any normalizer, against the spec itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.engine.dense import spec_values
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.ir.algebra.exprs import both
from cubridge.ir.nodes import Expr
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec, Shape
from cubridge.passes.pipeline import parse_text
from cubridge.passes.propose import propose
from cubridge.passes.runner import run_pipeline
from tests.passes.specs import CASES, SCALED, elementwise, normalised, softmax
from tests.passes.strategies import masks
from tests.support.golden_texts import golden_kernel

SCORES: Final = [
    SCALED, "s * 0.1", "s * -0.1", f"{SCALED} + a[h] * (j - i)", f"20 * tanh({SCALED} / 20)",
    f"15 * tanh(({SCALED} + c[b, j]) / 15)",
    f"{SCALED} + c[b, j] * a[h] - log(Lk)", f"({SCALED} + d[i]) * 0.5", f"{SCALED} + g[h, maximum(minimum(i - j, 8), -8) + 8]",
    f"where(j < i, {SCALED}, {SCALED} * 0.5)", f"{SCALED} + e * abs(i - j) / Lk", f"{SCALED} * (1 + d[i]) + i / (j + 1)",
]  # fmt: skip
NORMALIZERS: Final = {
    "softmax": softmax(),
    "sigmoid": elementwise("1 / (1 + exp(-(x - log(Lk))))"),
    "relu": elementwise("maximum(x, 0) / Lk"),
    "gelu": elementwise("x * (1 + erf(x * 0.7)) / 2", "acc / (i + 1)"),
    "sink": CASES["sink lse"].spec,
    "off by one": CASES["off by one"].spec,
    "clamped": CASES["clamped"].spec,
    "weighted": normalised("exp(x - m) * a[h]", {"l": "sum exp(x - m)", "n": "sum 1"}, "acc / l + 0 * n"),
    "by key": normalised("exp(x - m)", {"l": "sum exp(x - m) * (1 + c[b, j] * c[b, j])"}, "acc / l"),
    "entropy": normalised(
        "exp(x - m)", {"l": "sum exp(x - m)", "t": "sum x * exp(x - m)"}, "acc / (l + 0.001 * abs(t))"
    ),
}
DATA: Final = [None, "doc[b, i] == doc[b, j]", "(doc[b, j] < 2) | (j <= i)", "j <= i + f[b]"]
CAPTURES: Final = softmax(
    captures="a f32 Hq; c f32 B, Lk; d f32 Lq; g f32 Hq, 17; e f32; f i32 B; doc i32 B, maximum(Lq, Lk); z f32 Hq"
).captures


def _values(shape: Shape) -> dict[str, torch.Tensor | float]:
    length = max(shape.Lq, shape.Lk)
    return {
        "a": torch.linspace(0.05, 0.4, shape.Hq),
        "c": torch.cos(torch.arange(shape.B * shape.Lk)).view(shape.B, shape.Lk),
        "d": torch.sin(torch.arange(shape.Lq)) * 0.3,
        "g": torch.sin(torch.arange(shape.Hq * 17)).view(shape.Hq, 17),
        "e": -0.5,
        "f": torch.arange(shape.B, dtype=torch.int32) * 30 - 10,
        "doc": (torch.arange(length)[None, :] // 45 + torch.arange(shape.B)[:, None]).int(),
        "z": torch.linspace(-1.0, 2.0, shape.Hq),
    }


def _composed(score: str, mask: Expr, data: str | None, normalizer: AttentionSpec) -> AttentionSpec:
    visible = mask if data is None else both(mask, parse_expr(data))
    rows = tuple(replace(r, over=visible) for r in normalizer.rows)
    return replace(normalizer, score=parse_expr(score), mask=visible, rows=rows, captures=CAPTURES)


@given(
    st.sampled_from(SCORES),
    masks,
    st.sampled_from(DATA),
    st.sampled_from(sorted(NORMALIZERS)),
    st.sampled_from(["sm80", "sm90a"]),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_a_random_variant_is_what_its_spec_says(score: str, mask: Expr, data: str | None, name: str, arch: str) -> None:
    spec = _composed(score, mask, data, NORMALIZERS[name])
    shape = Shape(2, 2, 1, 130, 150, 128)
    torch.manual_seed(2)
    torch.set_num_threads(1)
    q, k, v = (torch.randn(2, h, n, 128).bfloat16() for h, n in ((2, shape.Lq), (1, shape.Lk), (1, shape.Lk)))
    kernel = golden_kernel(arch)
    pipeline = propose(spec, kernel)
    target = run_pipeline(kernel, pipeline)
    assert run_pipeline(kernel, parse_text(pipeline.to_text())) == target
    values = _values(shape)
    out, lse = run_values(target, (q, k, v), Launch(shape, values, {"GROUP_HEADS": 2, "SM_COUNT": 2}))
    want = spec_values(spec, q, k, v, values)
    scale = want.weights @ v.double().abs() + want.out.abs()
    assert ((out.double() - want.out).abs() <= 2.0**-6 * scale + 1e-6).all()
    if spec.lse is not None and lse is not None and want.lse is not None:
        assert torch.equal(lse.isinf(), want.lse.isinf())
        assert torch.allclose(lse.double(), want.lse, atol=1e-3, rtol=1e-4)
