"""Operators of adaptations with their backward pass, on the emulator: gradients of references with arguments, variables, other
kinds of them, and what is kept of such operators."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import torch
from torch import Tensor

from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adapted import Adapted
from cubridge.driver.backward import Lowered, lower_backward
from cubridge.driver.compiled import compile_adapted
from cubridge.engine.autograd import autograd_values
from cubridge.engine.dense_gradient import Gradients, forward
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.spec import Shape
from cubridge.judge.backward_mutants import backward_mutants
from cubridge.judge.checker import approximations
from cubridge.judge.gradient_bound import gradient_bound
from cubridge.judge.gradient_problem import make_gradient_problem
from cubridge.judge.plan import Case

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
TABLE = torch.linspace(-1.0, 1.0, 7)
L = 40


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * q.shape[-1] ** -0.5


def capped(q, k, v, bias, cap=20.0):
    """An argument, a number that the derivative reads, and a table of the module."""
    s = cap * torch.tanh(scores(q, k) / cap) + TABLE[torch.arange(k.shape[2]) % 7] + bias
    return torch.softmax(s, -1).to(v.dtype) @ v


def masked(q, k, v, bias):
    """A bias, or flags."""
    s = scores(q, k)
    s = s.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else s + bias
    return torch.softmax(s, -1).to(v.dtype) @ v


DEVICE = PtxDevice(ONE_SCHEDULE)


def adaptation(reference, **extra: object) -> tuple[Adapted, Lowered]:
    """`extra`: arguments besides a bias."""

    def extra_inputs(shape, device):
        return {"bias": torch.zeros(shape.Lq, shape.Lk, device=device), **extra}

    adapted = adapt_unchecked(reference, "sm90a", extra_inputs=extra_inputs)
    return adapted, lower_backward(adapted)


def operator(made: tuple[Adapted, Lowered], **options) -> AttentionOperator:
    adapted, backward = made
    return compile_adapted(adapted, lambda _: DEVICE, **{"backward": backward, "check": False, **options})


@pytest.fixture(scope="module")
def made() -> tuple[Adapted, Lowered]:
    return adaptation(capped, cap=20.0)


@pytest.fixture(scope="module")
def run(made: tuple[Adapted, Lowered]) -> AttentionOperator:
    return operator(made, device="emulator")


def qkv(dtype: torch.dtype = torch.bfloat16, heads: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, heads, L, 64, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


def close(run, reference, *given: object) -> None:
    """Gradients as the reference's own in fp64."""
    inputs, wide = qkv(), [x.detach().double().requires_grad_() for x in qkv()]
    dout = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = torch.autograd.grad(run(*inputs, *given), inputs, dout)
    doubles = [g.double() if isinstance(g, Tensor) and g.is_floating_point() else g for g in given]
    expected = torch.autograd.grad(reference(*wide, *doubles), wide, dout.double())
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() < 2e-2 * other.norm()


def test_arguments_numbers_and_variables_are_read_by_both_passes(run: AttentionOperator) -> None:
    bias = torch.linspace(-2, 2, L * L).view(L, L)
    close(run, capped, bias, 20.0)
    close(run, capped, -bias, 1.0)
    try:
        TABLE.mul_(-3.0)
        close(run, capped, bias, 1.0)
    finally:
        TABLE.copy_(torch.linspace(-1.0, 1.0, 7))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.py") if not p.stem.startswith("train_")))
def test_every_example_trains(name: str) -> None:
    """From what its own forward kernel hands on, within the bound."""
    adapted = adapt_unchecked(EXAMPLES / f"{name}.py", "sm90a")
    backward = lower_backward(adapted)
    attention, approximated = adapted.reference.attention, approximations(backward.targets.pairs)
    (shape,) = fitting_shapes(attention.spec, [Shape(1, 4, 2, 70, 150, 64)])
    problem = make_gradient_problem(attention, backward.gradient, "random", shape, 0, "bf16", approximated)
    p = problem
    inputs = [x.clone().requires_grad_() for x in (p.q, p.k, p.v)]
    out = operator((adapted, backward))(*inputs, **attention.extra(shape))
    assert isinstance(out, Tensor)
    found = Gradients(*torch.autograd.grad(out, inputs, p.dout))
    expected = autograd_values(attention.spec, p.q, p.k, p.v, p.captures, p.dout)
    saved = forward(backward.gradient, p.q, p.k, p.v, p.captures)
    bound = gradient_bound(saved, p.dout, None, "bf16", approximated)
    assert replace(p, dlse=None, expected=expected, bound=bound).accepts(found)


def test_what_is_captured_must_not_learn(run: AttentionOperator) -> None:
    bias = torch.zeros(L, L)
    try:
        for name, tensor in (("bias", bias), ("TABLE", TABLE)):
            tensor.requires_grad_()
            with pytest.raises(CuError, match=f"`{name}` requires a gradient"):
                run(*qkv(), bias, 20.0)
            tensor.requires_grad_(False)
    finally:
        TABLE.requires_grad_(False)


@pytest.mark.slow
def test_arguments_of_another_kind_train_too() -> None:
    close(operator(adaptation(masked)), masked, torch.ones(L, L).tril() > 0)


def test_another_kind_is_read_outside_of_the_operator(run: AttentionOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds are derived by autograd, which torch switches off inside of one."""
    seen: list[bool] = []

    def adapted_again(*_: object) -> Adapted:
        x = torch.ones((), requires_grad=True)
        seen.append((x * 2).requires_grad)
        raise CuError(Diagnostic("CU317", "seen"))

    monkeypatch.setattr("cubridge.driver.specialise.adapted_again", adapted_again)
    with pytest.raises(CuError, match="seen"):
        run(*qkv(), torch.ones(L, L) > 0, 20.0)
    assert seen == [True]


def test_a_copy_trains(run: AttentionOperator) -> None:
    made = copy.deepcopy(run)
    assert made.key == run.key
    assert made.training is not None


def test_the_backward_pass_is_judged_once_before_the_first_output(
    made: tuple[Adapted, Lowered], tmp_path: Path
) -> None:
    right, cases = made[1], [Case("random", Shape(1, 1, 1, 33, 65, 64))]
    wrong = right.of(dict(backward_mutants(right.targets, right.gradient))["delta missing"])
    given = (torch.zeros(L, L), 20.0)
    for backward, known in ((wrong, 1), (right, 2), (right, 2)):
        judged = operator(
            made, backward=backward, check=True, cases=lambda *_: cases, pass_cases=lambda *_: cases, cache_dir=tmp_path
        )
        judged(*(x.detach() for x in qkv()), *given)
        if backward is right:
            assert judged(*qkv(), *given).requires_grad
        else:
            with pytest.raises(CuError, match="the compiled backward pass is wrong") as caught:
                judged(*qkv(), *given)
            assert caught.value.diagnostics[0].code == "CU828"
        assert len([*tmp_path.glob("*.checked")]) == known
