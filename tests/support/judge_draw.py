"""Adapts a composed reference and compares what came of it with the reference run by plain PyTorch in fp64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import torch

from cubridge.driver.kernels import ChosenKernel, choose_kernel
from cubridge.driver.lift_source import lift_verified
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.reference import TracedReference, read_reference
from cubridge.driver.transfer import transfer_before_checks
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.spec import Shape
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.long_lengths import check_long_lengths
from cubridge.judge.plan import Case
from cubridge.judge.runners import ValueRunner
from cubridge.judge.tools import emulate
from tests.support.gradients import check_gradient

if TYPE_CHECKING:
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.ir.nodes import Kernel
    from cubridge.judge.problem import Problem
    from cubridge.judge.runners import Runner

HEAD_DIM: Final = 64
CASES: Final = (
    Case("index-coded V", Shape(1, 4, 2, 200, 330, HEAD_DIM), 1),
    Case("steep", Shape(2, 2, 2, 150, 90, HEAD_DIM), 2),
)
"""Two query tiles, three key tiles or more, lengths off the tile; both ways round."""


KNOWN_REFUSALS: Final = {
    "CU224": "a product of two indices that may pass 2^31",
    "CU515": "the same, found by a pass",
    "CU480": "nothing is visible: the output is no sum over v",
    "CU485": "a second pass over the keys",
    "CU486": "weights that do not depend on the scores, or two forms of one score",
    "CU487": "the reading differs from the reference: a fault of the reader, found by it",
    "CU514": "a normalizer that would take two sweeps",
}


REFUSED_GRADIENTS: Final = ("CU531", "CU532", "CU533")
"""A row maximum, two conventions at one bound, captured values made of q or k."""


class WrongError(AssertionError):
    """A kernel that was accepted and computes something else, or a reference that was refused for no known reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`refused`: why there is no kernel. `worst`: largest error over its bound; at most 1."""

    refused: Diagnostic | None = None
    worst: float = 0.0


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel of the package, read once."""

    chosen: ChosenKernel
    lifted: Lifted


@cache
def source(kernel: str) -> Source:
    chosen = choose_kernel(kernel)
    return Source(chosen, lift_verified(chosen, "bf16", HEAD_DIM))


def judge_draw(path: Path, kernel: str, emulated: bool = False) -> Outcome:
    """Adapt `kernel` to the reference in `path`. `emulated`: also run its text, and look at points of long problems.
    Raises WrongError with the first difference."""
    base = source(kernel)
    try:
        reference = read_reference(path)
        target = transfer_before_checks(base.lifted.kernel, reference.attention.spec).kernel
        patched = lower_kernel(base.chosen, base.lifted, target, "bf16", HEAD_DIM)
    except CuError as error:
        if error.diagnostics[0].code not in KNOWN_REFUSALS:
            raise WrongError(str(error)) from error
        return Outcome(error.diagnostics[0])
    _compare_gradient(reference)
    checker = Checker(reference.attention, "bf16", approximations(target))
    runners: list[Runner] = [ValueRunner(target)]
    if emulated:
        _look_far(target, reference)
        runners.append(emulate(base.chosen.with_text(patched_source(patched)), "bf16"))
    shapes = [(case, s) for case in CASES for s in fitting_shapes(reference.attention.spec, [case.shape])]
    if not shapes:
        raise WrongError("no shape to compare at")
    worst = [0.0]
    for case, shape in shapes:
        problem = checker.problem(replace(case, shape=shape))
        _compare_with_python(reference, problem)
        for runner in runners:
            (result,) = checker.run(runner, [replace(case, shape=shape)])
            if not result.accepted:
                raise WrongError(f"{result.stage} at {shape}, {case.inputs}: {result.detail}, LSE {result.lse}")
            worst.append(result.worst)
    return Outcome(worst=max(worst))


def _compare_gradient(reference: TracedReference) -> None:
    """What is derived against PyTorch's own, where it is not refused."""
    try:
        reference.gradient()
    except CuError as error:
        if error.diagnostics[0].code not in REFUSED_GRADIENTS:
            raise WrongError(str(error)) from error
        return
    try:
        check_gradient(reference.traced, at_bounds=False)
    except AssertionError as error:
        raise WrongError(f"another gradient than PyTorch's: {error}") from error


def _look_far(target: Kernel, reference: TracedReference) -> None:
    try:
        check_long_lengths(target, reference.attention.spec)
    except CuError as error:
        raise WrongError(str(error)) from error


def _compare_with_python(reference: TracedReference, problem: Problem) -> None:
    """The oracle, which is a replay of the trace, against the function itself, with fp64 for its fp32: an `exp` of `q.float()`
    may overflow in fp32."""
    traced = reference.traced
    extra = traced.extra(problem.shape)
    with torch.no_grad(), patch.object(torch.Tensor, "float", torch.Tensor.double):
        found = traced.reference.function(problem.q.double(), problem.k.double(), problem.v.double(), **extra)
    out = found[0] if isinstance(found, tuple) else found
    empty = traced.empty_rows(problem.shape.sizes(), problem.captures)[..., None]  # pyright: ignore[reportArgumentType]
    want = out.double().masked_fill(empty, 0.0)
    if not torch.allclose(problem.out, want, rtol=1e-4, atol=1e-4):
        raise WrongError(f"the oracle is not the function at {problem.shape}: {(problem.out - want).abs().max():.3g}")
