"""Faults of backward kernels: who catches them, and what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cubridge.derive.gradient import derive
from cubridge.driver.suites.faults import fault_table
from cubridge.engine.order.engine import run_order
from cubridge.ir.nodes import Expr
from cubridge.ir.parser import parse, parse_expr
from cubridge.judge.attention import full_attention
from cubridge.judge.backward_mutants import backward_mutants
from cubridge.judge.faults.verdicts import Verdict
from cubridge.judge.gradient_runs import Pass
from tests.support.backward import BACKWARD, LAST, PAIRS, lifted_backward


def test_faults_of_the_last_kernel() -> None:
    table = fault_table(LAST, "bf16", 64, lambda _: None, step=3)
    assert len(table.faults) > 8
    assert {j.by for j in table.faults} >= {"verify", "values"}
    assert table.missed == ()
    assert all(j.verdict is not Verdict.CAUGHT or j.diagnostic is not None for j in table.faults)


@pytest.mark.parametrize(
    ("changed", "without"),
    [
        ({"kv_head": parse_expr("h")}, {"the wrong heads"}),
        ({"score": parse_expr("s")}, {"scale on dq only", "scale on dk only"}),
    ],
    ids=["a key head each", "scores without a scale"],
)
def test_what_cannot_be_wrong(changed: dict[str, Expr], without: set[str]) -> None:
    """That mistake would be none, and nobody could reject it."""
    kernels = Pass(*(lifted_backward(name, 64) for name in BACKWARD))
    spec = full_attention().spec
    usual, fewer = (
        {name for name, _ in backward_mutants(kernels, derive(s))} for s in (spec, replace(spec, **changed))
    )
    assert usual - fewer == without and len(fewer) >= 6


def test_traces_tell_what_is_done_with_data() -> None:
    """Kernels that differ in an operand alone have other traces, so that none is taken for the other."""
    text = str(lifted_backward(PAIRS, 64))
    traces = run_order(lifted_backward(PAIRS, 64))[1]
    for old, new in (
        ("columns(smem.k, PART * wg, PART)", "columns(smem.k, PART * (wg ^ 1), PART)"),
        ("cast(grads, dp)", "cast(grads, s)"),
        ("scale(dk, p.grad_scale)", "scale(dv, p.grad_scale)"),
        ("probs_grad(dp, s, delta, n * BLOCK_Q, tile)", "probs_grad(dp, s, delta, n * BLOCK_Q + 1, tile)"),
    ):
        assert text.count(old) == 1
        faults, others = run_order(parse(text.replace(old, new)))
        assert faults == ()
        assert others != traces
