"""Mutants are specs that differ, and that the bound tells from the right one."""

from __future__ import annotations

import torch

from cubridge.engine.dense import spec_values
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Capture, Shape
from cubridge.judge.bound import judge, output_bound, score_error
from cubridge.judge.inputs import make_inputs
from cubridge.judge.mutants import MUTATIONS, mutants
from tests.support.specs import softmax_spec

SLOPE = Capture("slope", "argument", (parse_expr("Hq"),), "f32")
CAPPED_ALIBI = "30.0 * tanh((s * D ** -0.5 + slope[h] * f32(j - i)) / 30.0)"


def test_every_mutation_applies_to_some_spec() -> None:
    found = {name for name, _ in mutants(softmax_spec(CAPPED_ALIBI, captures=(SLOPE,)))}
    assert found == set(MUTATIONS)


def test_full_attention_has_mutants_too() -> None:
    assert len(list(mutants(softmax_spec(mask="True")))) >= 6


def test_bias_after_cap_moves_the_bias_only() -> None:
    wrong = dict(mutants(softmax_spec(CAPPED_ALIBI)))["bias after cap"]
    assert print_expr(wrong.score) == "30.0 * tanh(s * D ** -0.5 / 30.0) + slope[h] * f32(j - i)"


def test_the_bound_tells_every_mutant_of_the_output_apart() -> None:
    shape = Shape(1, 4, 2, 130, 70, 64)
    q, k, v = make_inputs("index-coded V", shape, torch.bfloat16, seed=3)
    spec = softmax_spec(CAPPED_ALIBI, captures=(SLOPE,))
    captures = {"slope": torch.tensor([0.5, 0.25, 0.125, 0.0625])}
    right = spec_values(spec, 2 * q, k, v, captures)
    by_head = [x.repeat_interleave(2, 1) for x in (k, v)]
    bound = output_bound(right, right.out, by_head[1], score_error(right, 2 * q, by_head[0]), "bf16")
    for name, wrong in mutants(spec):
        got = spec_values(wrong, 2 * q, k, v, captures)
        if name == "LSE in base 2":
            assert (got.lse - right.lse).abs().max() > 0.1  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        else:
            assert not judge(got.out, right.out, bound).accepted, name
