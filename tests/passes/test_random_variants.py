"""Variants composed at random: any score with any mask with any normalizer, against the spec itself."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.engine.dense import spec_values
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.ir.nodes import Expr
from cubridge.ir.spec import Shape
from cubridge.passes.pipeline import parse_text
from cubridge.passes.propose import propose
from cubridge.passes.runner import run_pipeline
from tests.passes.composed import DATA, NORMALIZERS, SCORES, composed, values_of
from tests.passes.strategies import masks
from tests.support.golden_texts import golden_kernel


@given(
    st.sampled_from(SCORES),
    masks,
    st.sampled_from(DATA),
    st.sampled_from(sorted(NORMALIZERS)),
    st.sampled_from(["sm80", "sm90a"]),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_a_random_variant_is_what_its_spec_says(score: str, mask: Expr, data: str | None, name: str, arch: str) -> None:
    spec = composed(score, mask, data, NORMALIZERS[name])
    shape = Shape(2, 2, 1, 130, 150, 128)
    torch.manual_seed(2)
    torch.set_num_threads(1)
    q, k, v = (torch.randn(2, h, n, 128).bfloat16() for h, n in ((2, shape.Lq), (1, shape.Lk), (1, shape.Lk)))
    kernel = golden_kernel(arch)
    pipeline = propose(spec, kernel)
    target = run_pipeline(kernel, pipeline)
    assert run_pipeline(kernel, parse_text(pipeline.to_text())) == target
    values = values_of(shape)
    out, lse = run_values(target, (q, k, v), Launch(shape, values, {"GROUP_HEADS": 2, "SM_COUNT": 2}))
    want = spec_values(spec, q, k, v, values)
    scale = want.weights @ v.double().abs() + want.out.abs()
    assert ((out.double() - want.out).abs() <= 2.0**-6 * scale + 1e-6).all()
    if spec.lse is not None and lse is not None and want.lse is not None:
        assert torch.equal(lse.isinf(), want.lse.isinf())
        assert torch.allclose(lse.double(), want.lse, atol=1e-3, rtol=1e-4)
