"""Capped scores, weighed against a constant: with every score at an end, with rows that see no key, in both formats."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.compiled import compile_adapted
from cubridge.driver.found import found
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.reference import read_reference
from cubridge.driver.transfer import transfer_unverified
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Shape
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.findings import CaseResult
from cubridge.judge.plan import Case
from cubridge.judge.runners import ValueRunner
from cubridge.passes import constant_reference

SHAPE = Shape(1, 2, 1, 40, 150, 64)
ENDS = (Case("level scores", SHAPE, 1), Case("steep", SHAPE, 2))


def capped(q, k, v, cap):
    s = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5
    s = cap * torch.tanh(s / cap)
    hidden = torch.arange(k.shape[2]) >= torch.arange(q.shape[2])[:, None]
    return s.masked_fill(hidden, -torch.inf).softmax(-1) @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)


def results(cap: float, dtype: str) -> tuple[bool, tuple[CaseResult, ...]]:
    """Is the reference a constant, and what the runs gave."""
    traced = read_reference(partial(capped, cap=cap), dtype=dtype)
    source = lift_kernel(choose_kernel("sm80"), dtype, 64).kernel
    target = transfer_unverified(source, traced.attention.spec)
    checker = Checker(traced.attention, dtype, approximations(target))
    return [f.name for f in target.row_state] == ["l"], checker.run(ValueRunner(target), ENDS)


@pytest.mark.parametrize(
    ("cap", "dtype", "constant"),
    [(30.0, "bf16", True), (50.0, "bf16", False), (9.0, "fp16", True), (30.0, "fp16", False)],
)
def test_scores_at_both_ends_are_told_apart(cap: float, dtype: str, constant: bool) -> None:
    is_constant, runs = results(cap, dtype)
    assert is_constant is constant
    assert all(r.accepted for r in runs), runs


def test_weights_past_the_range_of_their_format_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_reference, "_FARTHEST_NARROW", 99)
    is_constant, runs = results(30.0, "fp16")
    assert is_constant
    assert not any(r.accepted for r in runs)


def test_a_kernel_without_a_maximum_is_refused_in_fp16() -> None:
    adapted = adapt_unchecked(partial(capped, cap=30.0), "sm80", SHAPE)
    run = compile_adapted(adapted, lambda _: PtxDevice(ONE_SCHEDULE), cases=lambda *_: [])
    assert any(
        "values are at most 2 ** 40" in a for a in found(adapted.reference.attention.spec, adapted.target).assumptions
    )
    with pytest.raises(CuError, match="leave the range of fp16") as caught:
        run(*(torch.randn(1, h, n, 64).half() for h, n in ((2, 40), (1, 150), (1, 150))))
    assert caught.value.diagnostics[0].code == "CU824"
