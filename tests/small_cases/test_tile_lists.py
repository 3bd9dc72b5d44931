"""Masks that read data, with data that is odd, on both kernels: the lists of key tiles hold all that is seen and no more."""
# pyright: basic

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from cubridge.judge.problem import problem_of
from cubridge.judge.runners import ValueRunner
from tests.small_cases.tools import adapted, attend, each_on, emulator, positions, random_inputs, scores

EACH = each_on("sm80")
LENGTH = 200


def causal_documents(q, k, v, doc, keep):
    """`keep` [B, L]: keys that may be seen at all, a truth."""
    i, j = positions(q, k)
    same = (doc[:, None, :, None] == doc[:, None, None, :]) & keep[:, None, None, :]
    return attend(scores(q, k).masked_fill(~(same & (j <= i)), -torch.inf).softmax(-1).nan_to_num(0.0), q, v)


def _shuffled(n):
    return torch.randperm(n, generator=torch.Generator().manual_seed(1)) // 60


IDS = {
    "runs": lambda n: torch.arange(n) // 70,
    "one document": torch.zeros,
    "shuffled": _shuffled,
    "documents that nobody is in": lambda n: torch.arange(n) // 50 * 7 % 11,
    "padding": lambda n: torch.where(torch.arange(n) < 150, torch.arange(n) // 60, -1),
    "one key each": torch.arange,
}
KEEP = {
    "all": lambda n: torch.ones(n, dtype=torch.bool),
    "none": lambda n: torch.zeros(n, dtype=torch.bool),
    "every third": lambda n: torch.arange(n) % 3 == 0,
}


def _extra(ids, keep, dtype, shape):
    n = max(shape.Lq, shape.Lk)
    doc = IDS[ids](n).to(dtype)
    return {"doc": torch.stack([doc, doc.roll(37)])[: shape.B], "keep": KEEP[keep](n).expand(shape.B, n)}


CASES = (
    *((ids, "all", torch.int64) for ids in IDS),
    ("runs", "all", torch.int32),
    ("shuffled", "every third", torch.int16),
    ("runs", "none", torch.uint8),
)


def example(shape, device):
    return _extra("runs", "all", torch.int64, shape)


@cache
def _problem(attention, case):
    given = replace(attention, extra=partial(_extra, *case))
    return problem_of(given, "given", random_inputs(2, 1, 1, LENGTH, LENGTH), "bf16", {})


@EACH
@pytest.mark.parametrize("emulated", [False, True])
def test_odd_data(kernel: str, emulated: bool) -> None:
    made = adapted(causal_documents, example, kernel)
    runner = emulator(causal_documents, example, kernel) if emulated else ValueRunner(made.target)
    for case in CASES:
        problem = _problem(made.reference.attention, case)
        out, lse = runner.run(problem, lse=True)
        assert problem.judge(out, lse).accepted, case
        assert case[1] != "none" or not out.any()
