"""The gradient derived from what was read of a reference, against PyTorch's own of the reference itself, both in fp64."""

from __future__ import annotations

import torch

from cubridge.derive.gradient import derive
from cubridge.engine.autograd import autograd_values
from cubridge.engine.dense_gradient import Gradients, gradient_values
from cubridge.frontend.reference.traced import Traced
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.spec import Shape
from cubridge.judge.inputs import make_inputs

SHAPE = Shape(2, 4, 2, 9, 13, 8)


def check_gradient(traced: Traced, at_bounds: bool = True) -> None:
    """At a small shape, where one query is 0, if `at_bounds`, and its scores stand at the bounds of ReLUs. Rows that see no key,
    of which a reference makes NaN, are given no gradient; where they poison its others all the same, PyTorch's of the spec is the
    measure alone. Values that are computed from q and k have gradients of their own, which `TracedReference.gradient` refuses to
    lose."""
    spec = traced.spec
    if any(traced.inputs_of(c.name) & {"q", "k", "v"} for c in spec.captures):
        return
    for shape in fitting_shapes(spec, [SHAPE]):
        q, k, v = make_inputs("random", shape, torch.bfloat16, seed=1)
        if at_bounds:
            q[:, :, shape.Lq // 3] = 0.0
        extra = traced.extra(shape)
        captures = traced.captures(shape.sizes(), {**extra, "q": q, "k": k, "v": v}, wide=True)
        empty = traced.empty_rows(shape.sizes(), captures)
        generator = torch.Generator().manual_seed(2)
        dout = torch.randn(q.shape, generator=generator).masked_fill(empty[..., None], 0.0)
        dlse = torch.randn(q.shape[:3], generator=generator).masked_fill(empty, 0.0) if spec.gives_lse else None
        found = gradient_values(derive(spec), q, k, v, captures, dout, dlse)
        expected = autograd_values(spec, q, k, v, captures, dout, dlse)
        assert_close(found, expected)
        of_reference = Gradients(*traced.gradients(q, k, v, extra, dout, dlse))
        if not empty.any():
            assert_close(found, of_reference)


def assert_close(found: Gradients, expected: Gradients) -> None:
    for name in ("dq", "dk", "dv"):
        a, b = getattr(found, name), getattr(expected, name)
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-6 * float(b.abs().max())), (name, float((a - b).abs().max()))
