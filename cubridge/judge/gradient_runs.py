"""A backward pass run on a problem: what its kernels, one after the other, make of a forward pass's output and LSE."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cubridge.engine.core.sync import IN_TURN, Policy
from cubridge.engine.dense import spec_values
from cubridge.engine.dense_gradient import Gradients
from cubridge.engine.values.engine import run_kernel
from cubridge.engine.values.launch import Launch

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.nodes import Kernel
    from cubridge.judge.attention import Attention
    from cubridge.judge.gradient_problem import GradientProblem


class Pass(NamedTuple):
    """The kernels of a backward pass, in the order in which they run."""

    rows: Kernel
    pairs: Kernel
    last: Kernel


def saved(attention: Attention, problem: GradientProblem) -> tuple[Tensor, Tensor]:
    """(out, lse): what the forward pass hands on, out in the element type of q; without an LSE zeros."""
    import torch

    p = problem
    values = spec_values(attention.spec, p.q, p.k, p.v, p.captures, derivatives=False)
    lse = torch.zeros(p.q.shape[:3]) if values.lse is None else values.lse.float()
    return values.out.to(p.q.dtype), lse


def run_pass(kernels: Pass, attention: Attention, problem: GradientProblem, policy: Policy = IN_TURN) -> Gradients:
    """On the value engine. Errors: as `run_kernel`."""
    import torch

    p, launch = problem, Launch(problem.shape, problem.captures)
    out, lse = saved(attention, p)
    d_lse = torch.zeros_like(lse) if p.dlse is None else p.dlse
    made = run_kernel(kernels.rows, {"o": out, "d_o": p.dout, "lse": lse, "d_lse": d_lse}, launch, policy=policy)
    read = {"q": p.q, "k": p.k, "v": p.v, "d_o": p.dout, "lse_rows": made["lse_rows"], "delta": made["delta"]}
    pairs = run_kernel(kernels.pairs, read, launch, {"dq_sum": made["dq_sum"]}, policy=policy)
    last = run_kernel(kernels.last, {"q": p.q, "dq_sum": pairs["dq_sum"]}, launch, policy=policy)
    return Gradients(last["dq"], pairs["dk"], pairs["dv"])
