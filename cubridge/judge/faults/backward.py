"""Judging faults of the kernels of a backward pass: each in its place among the others, on the value engine."""

from __future__ import annotations

from typing import Final

import torch

from cubridge.derive.gradient import derive
from cubridge.engine.dense_gradient import Gradients
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import Shape
from cubridge.ir.tile_shape import dtype_of, head_dim
from cubridge.judge.attention import Attention, full_attention
from cubridge.judge.faults.verdicts import Judge, judge_of
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from cubridge.judge.gradient_runs import Pass, run_pass

_SHAPES: Final = ((1, 4, 2, 130, 150), (2, 2, 2, 64, 257), (1, 1, 1, 1, 128))
"""B, Hq, Hk, Lq, Lk: tails both ways and grouped heads, whole query tiles, one row."""


def make_backward_judge(kernels: Pass, kernel: Kernel) -> Judge:
    """Of one of the kernels. Errors: what the engines say of the pass itself."""
    attention, dim = full_attention(), head_dim(kernels.pairs)
    gradient, dtype = derive(attention.spec), dtype_of(kernels.pairs)
    problems = [
        make_gradient_problem(attention, gradient, "index-coded V", Shape(*shape, dim), n, dtype, {})
        for n, shape in enumerate(_SHAPES)
    ]
    right = [(p, run_pass(kernels, attention, p)) for p in problems]

    def differs(other: Kernel) -> Diagnostic | None:
        with_fault = Pass(*(other if k is kernel else k for k in kernels))
        return next((d for p, own in right if (d := _difference(with_fault, attention, p, own)) is not None), None)

    return judge_of(kernel, differs)


def _difference(kernels: Pass, attention: Attention, problem: GradientProblem, own: Gradients) -> Diagnostic | None:
    try:
        got = run_pass(kernels, attention, problem)
    except CuError as error:
        return error.diagnostics[0]
    for name in ("dq", "dk", "dv"):
        if not torch.equal(getattr(got, name), getattr(own, name)):
            return Diagnostic("CU316", f"{name} is another at {problem.shape}", kernels.pairs.span)
    return None
