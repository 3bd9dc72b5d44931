"""One problem of a check of gradients: inputs, what PyTorch's own gradients in fp64 are, and how far a kernel may be from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cubridge.engine.autograd import autograd_values
from cubridge.engine.dense import spec_values
from cubridge.engine.dense_gradient import Gradients, forward
from cubridge.judge.bound import Judgement, filled_rows, judge
from cubridge.judge.gradient_bound import cancelled, gradient_bound
from cubridge.judge.inputs import make_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.functions import FunctionInfo
    from cubridge.ir.gradient import GradientSpec
    from cubridge.ir.spec import Shape
    from cubridge.judge.attention import Attention, Captures

TENSORS = ("dq", "dk", "dv")


@dataclass(frozen=True, slots=True)
class GradientProblem:
    """Shapes: q, dout [B, Hq, Lq, D]; k, v [B, Hk, Lk, D]; dlse [B, Hq, Lq], None where the attention defines no LSE.

    `cancelled`: of each gradient, the share of elements that rounding alone may be as large as; at 1 nothing is judged of it."""

    shape: Shape
    inputs: str
    q: Tensor
    k: Tensor
    v: Tensor
    captures: Captures
    dout: Tensor
    dlse: Tensor | None
    expected: Gradients
    bound: Gradients
    cancelled: Mapping[str, float]

    def judge(self, got: Gradients) -> dict[str, Judgement]:
        """Compare what a kernel gave, tensor by tensor."""
        return {n: judge(getattr(got, n), getattr(self.expected, n), getattr(self.bound, n)) for n in TENSORS}

    def accepts(self, got: Gradients) -> bool:
        return all(judgement.accepted for judgement in self.judge(got).values())


def make_gradient_problem(
    attention: Attention,
    gradient: GradientSpec,
    kind: str,
    shape: Shape,
    seed: int,
    dtype: str,
    approximated: Mapping[str, FunctionInfo],
) -> GradientProblem:
    """`gradient`: that of `attention`, right. Rows that see fills alone are given no gradient, since fp32 cannot tell their keys
    apart. Raises what the reference raises at this shape, as CuError."""
    import torch

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    q, k, v = make_inputs(kind, shape, half, seed)
    captures = attention.captures(shape, attention.extra(shape), {"q": q, "k": k, "v": v})
    generator = torch.Generator().manual_seed(seed + 1)
    filled = filled_rows(spec_values(attention.spec, q, k, v, captures, derivatives=False))
    dout = torch.randn(q.shape, generator=generator).masked_fill(filled[..., None], 0.0).to(half)
    dlse = None
    if attention.spec.lse is not None:
        dlse = torch.randn(q.shape[:3], generator=generator).masked_fill(filled, 0.0)
    expected = autograd_values(attention.spec, q, k, v, captures, dout, dlse)
    bound = gradient_bound(forward(gradient, q, k, v, captures), dout, dlse, dtype, approximated)
    share = {n: cancelled(getattr(expected, n), getattr(bound, n)) for n in TENSORS}
    return GradientProblem(shape, kind, q, k, v, captures, dout, dlse, expected, bound, share)
