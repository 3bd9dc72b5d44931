"""What the proposed kernels compute, on the value engine, against each spec evaluated as it is defined."""

from __future__ import annotations

from typing import Final

import pytest
import torch

from cubridge.engine.dense import spec_values
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.ir.spec import Shape
from cubridge.passes.propose import propose
from cubridge.passes.runner import run_pipeline
from tests.passes.specs import CASES
from tests.support.golden_texts import golden_kernel

HALF_ULP: Final = 2.0**-8
LAUNCH: Final = {"GROUP_HEADS": 2, "SM_COUNT": 2}
RUNS: Final = [
    *(("sm80", n) for n in CASES),
    *(("sm90a", n) for n in ("global window", "share question", "sink lse", "comb", "softpick of a maximum")),
]


@pytest.mark.parametrize(("arch", "name"), RUNS)
def test_the_target_computes_the_spec(arch: str, name: str) -> None:
    case = CASES[name]
    shape = Shape(1, 2, 1, 200, 200, 128) if case.square else Shape(1, 2, 1, 140, 200, 128)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, h, n, 128).bfloat16() for h, n in ((2, shape.Lq), (1, shape.Lk), (1, shape.Lk)))
    values = case.values(shape)
    target = run_pipeline(golden_kernel(arch), propose(case.spec, golden_kernel(arch)))
    out, lse = run_values(target, (q, k, v), Launch(shape, values, LAUNCH))
    want = spec_values(case.spec, q, k, v, values)
    scale = want.weights @ v.double().abs() + want.out.abs()
    assert ((out.double() - want.out).abs() <= 2 * HALF_ULP * scale + 1e-12).all()
    if case.spec.lse is None:
        return
    assert lse is not None and want.lse is not None
    assert torch.equal(lse.isinf(), want.lse.isinf())
    assert torch.allclose(lse.double(), want.lse, atol=1e-4, rtol=1e-5)
