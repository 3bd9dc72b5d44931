"""From a reference to what a small case looks at: its spec, its weights, its kernels' results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adapted import Adapted
from cubridge.driver.reference import TracedReference, read_reference
from cubridge.engine.dense import SpecValues, spec_values
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.spec import AttentionSpec
from cubridge.judge.bound import VAGUE
from cubridge.judge.checker import approximations
from cubridge.judge.problem import Problem, problem_of
from cubridge.judge.runners import Runner, ValueRunner
from cubridge.judge.tools import emulate

Reference = Callable[..., object]
Extra = Callable[..., dict[str, object]] | None
Inputs = tuple[Tensor, Tensor, Tensor]

KERNELS = ("sm80", "sm90a")


def each_on(quick: str) -> pytest.MarkDecorator:
    """A case for each kernel: on `quick` in every run, on the other one among the slow tests."""
    marked = (pytest.param(k, marks=() if k == quick else pytest.mark.slow) for k in KERNELS)
    return pytest.mark.parametrize("kernel", [*marked])


@cache
def traced(reference: Reference, extra: Extra = None) -> TracedReference:
    return read_reference(reference, extra_inputs=extra)


def spec(reference: Reference, extra: Extra = None) -> AttentionSpec:
    return traced(reference, extra).attention.spec


def values(reference: Reference, q: Tensor, k: Tensor, v: Tensor, extra: Extra = None) -> SpecValues:
    """What the spec found in a reference says, in fp64."""
    from cubridge.ir.spec import Shape

    attention = traced(reference, extra).attention
    shape = Shape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])
    given = attention.extra(shape)
    return spec_values(attention.spec, q, k, v, attention.captures(shape, given, {"q": q, "k": k, "v": v}))


def of_products(products: list[list[float]]) -> Inputs:
    """q, k, v of one head whose raw products q.k are `products`; v makes the output the weights themselves."""
    raw = torch.tensor(products, dtype=torch.float64)[None, None]
    unit = torch.eye(raw.shape[-1], dtype=torch.float64)[None, None]
    return raw, unit, unit


def visible(reference: Reference, lq: int, lk: int, extra: Extra = None) -> list[int]:
    """How many keys each row of head 0 sees."""
    q, k = torch.zeros(1, 1, lq, 8), torch.zeros(1, 1, lk, 8)
    return values(reference, q, k, k, extra).visible[0, 0].sum(-1).tolist()


def refused(reference: Reference, extra: Extra = None) -> Diagnostic:
    """Why a reference is not adapted."""
    try:
        adapt_unchecked(traced(reference, extra))
    except CuError as error:
        return error.diagnostics[0]
    raise AssertionError("the reference was adapted")


@cache
def adapted(reference: Reference, extra: Extra = None, kernel: str = "sm80") -> Adapted:
    """Head dim 64, bf16."""
    return adapt_unchecked(traced(reference, extra), kernel)


@cache
def emulator(reference: Reference, extra: Extra = None, kernel: str = "sm80") -> Runner:
    return emulate(adapted(reference, extra, kernel).text, "bf16")


@dataclass(frozen=True, slots=True)
class Result:
    """`out`, `lse` of a kernel beside the problem that it solved."""

    problem: Problem
    out: Tensor
    lse: Tensor | None

    @property
    def right(self) -> bool:
        return self.problem.vagueness < VAGUE and self.problem.judge(self.out, self.lse).accepted


def run(
    reference: Reference, inputs: Inputs, extra: Extra = None, kernel: str = "sm80", *, emulated: bool = False
) -> Result:
    """The adapted kernel on the value engine, or its text on the emulator."""
    made = adapted(reference, extra, kernel)
    problem = problem_of(made.reference.attention, "given", inputs, "bf16", approximations(made.target))
    runner = emulator(reference, extra, kernel) if emulated else ValueRunner(made.target)
    out, lse = runner.run(problem, lse=problem.lse is not None)
    return Result(problem, out, lse)


def random_inputs(b: int, hq: int, hk: int, lq: int, lk: int, seed: int = 0) -> Inputs:
    """bf16, head dim 64."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(b, h, n, 64, generator=generator).bfloat16() for h, n in ((hq, lq), (hk, lk), (hk, lk)))
    return q, k, v


def repeated(t: Tensor, q: Tensor) -> Tensor:
    """Keys or values for every query head."""
    return t.repeat_interleave(q.shape[1] // t.shape[1], 1)


def scores(q: Tensor, k: Tensor) -> Tensor:
    """Scaled products, for references."""
    return q @ repeated(k, q).mT * q.shape[-1] ** -0.5


def products(q: Tensor, k: Tensor) -> Tensor:
    """Raw products, for references."""
    return q @ repeated(k, q).mT


def attend(weights: Tensor, q: Tensor, v: Tensor) -> Tensor:
    return weights.to(v.dtype) @ repeated(v, q)


def positions(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
