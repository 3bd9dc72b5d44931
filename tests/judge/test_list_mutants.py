"""Wrong walks of lists of key tiles move the result, and a check rejects them."""

from __future__ import annotations

from functools import cache

import pytest

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adapted import Adapted
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.list_mutants import MUTATIONS, list_mutants
from cubridge.judge.plan import mutant_cases
from cubridge.judge.runners import ValueRunner
from tests.support.variants import VARIANTS


@cache
def adapted(name: str) -> Adapted:
    return adapt_unchecked(VARIANTS[name].path, "sm80")


@pytest.mark.parametrize("name", ["documents_causal", "causal_blockwise"])
def test_each_is_rejected_and_the_kernel_itself_is_not(name: str) -> None:
    made = adapted(name)
    attention = made.reference.attention
    checker = Checker(attention, "bf16", approximations(made.target))
    problems = checker.problems(mutant_cases(attention.spec, made.shape))
    found = list(list_mutants(made.target, attention.spec, problems))
    assert {n for n, _, _ in found} == {*MUTATIONS} - {"list of the next batch"}  # the problems have one batch
    for mutation, wrong, problem in found:
        assert checker.reject(mutation, problem, ValueRunner(wrong)).rejected_by is not None
        assert checker.reject(mutation, problem, ValueRunner(made.target)).rejected_by is None


def test_kernels_that_walk_intervals_have_none() -> None:
    made = adapted("causal_top_left")
    assert list(list_mutants(made.target, made.reference.attention.spec, [])) == []
