"""What counts as right: values within their bounds and the LSE too, of problems that can be judged, run by tools that are there."""

# pyright: basic

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.spec import Shape
from cubridge.judge.attention import full_attention
from cubridge.judge.bound import VAGUE, Judgement, filled_rows, judge
from cubridge.judge.checker import Checker, furthest_off
from cubridge.judge.plan import Case
from cubridge.judge.problem import Problem

CASE = Case("random", Shape(1, 2, 1, 20, 30, 64), 1)


@dataclass
class Runner:
    """Gives what is asked for."""

    gives: Callable[[Problem], tuple[Tensor, Tensor | None]]
    stage: str = "some runner"

    def run(self, problem: Problem, lse: bool) -> tuple[Tensor, Tensor | None]:
        out, found = self.gives(problem)
        return out, found if lse else None


def right(problem: Problem) -> tuple[Tensor, Tensor | None]:
    return problem.out.bfloat16(), problem.lse


def checker() -> Checker:
    return Checker(full_attention(), "bf16", {})


@pytest.mark.parametrize(
    ("out", "lse", "accepted", "says"),
    [
        (1.0, 1.0, True, ""),
        (1.1, 1.0, False, "not"),
        (float("nan"), 1.0, False, "nan, not"),
        (1.0, 1.001, False, "the output is right, the LSE is not"),
        (1.0, float("nan"), False, "the output is right, the LSE is not"),
    ],
)
def test_output_and_lse_count(out: float, lse: float, accepted: bool, says: str) -> None:
    check = checker()
    runner = Runner(lambda p: (right(p)[0] * out, None if p.lse is None else p.lse * lse))
    (result,) = check.run(runner, [CASE])
    assert (result.accepted, result.stage, result.inputs) == (accepted, "some runner", "random")
    assert says in result.detail
    mutant = check.reject("wrong", check.problem(CASE), runner)
    assert (mutant.rejected_by is None) == accepted
    assert ("LSE off by" in mutant.detail) == (out == 1.0)


def test_an_lse_that_is_not_given_is_not_judged() -> None:
    (result,) = checker().run(Runner(lambda p: (right(p)[0], None)), [CASE])
    assert result.accepted and result.lse is None


def test_a_problem_that_shows_nothing_is_not_passed() -> None:
    check = checker()
    check._problems[CASE] = replace(check.problem(CASE), vagueness=VAGUE)
    (result,) = check.run(Runner(right), [CASE])
    assert not result.accepted and "too large to compare" in result.detail


@pytest.mark.parametrize(("exit_code", "is_raised"), [(1, False), (3, False), (4, False), (5, True), (70, True)])
def test_faults_of_a_run_are_results_and_missing_tools_are_not(exit_code: int, is_raised: bool) -> None:
    def fails(_: Problem) -> tuple[Tensor, Tensor | None]:
        raise CuError(Diagnostic("CU830", "it does not run"), exit_code=exit_code)

    if is_raised:
        with pytest.raises(CuError):
            checker().run(Runner(fails), [CASE])
    else:
        (result,) = checker().run(Runner(fails), [CASE])
        assert not result.accepted and result.worst == float("inf")


def test_shapes_at_which_the_reference_fails_are_passed_over() -> None:
    known = full_attention()

    def failing(shape: Shape):
        if shape.Lk == 31:
            raise CuError(Diagnostic("CU473", "no such length"))
        return known.extra(shape)

    check = Checker(replace(known, extra=failing), "bf16", {})
    odd = replace(CASE, shape=replace(CASE.shape, Lk=31))
    assert len(check.run(Runner(right), [CASE, odd])) == 1
    assert list(check.passed_over) == [odd.shape]
    with pytest.raises(CuError, match="CU473"):
        check.problems([odd])


def test_wrong_specs_are_those_that_a_problem_shows() -> None:
    check = checker()
    found = {name: problem for name, _, problem in check.wrong_specs([CASE])}
    assert len(found) >= 4 and all(p is check.problem(CASE) for p in found.values())


def test_what_is_furthest_off() -> None:
    assert furthest_off(Judgement(1.0, (0,), 1.0, 2.0, 3.0)) == "the output is right, the LSE is not"
    assert furthest_off(Judgement(1.5, (0, 1), 1.0, 2.0)) == "at (0, 1): 1, not 2"
    assert not Judgement(1.0, (), 0.0, 0.0, 1.5).accepted and not Judgement(1.5, (), 0.0, 0.0, 0.5).accepted
    assert Judgement(1.0, (), 0.0, 0.0, 1.0).accepted and Judgement(1.0, (), 0.0, 0.0, None).accepted


def test_nothing_is_right() -> None:
    assert judge(*(torch.zeros(1, 1, 0, 4) for _ in range(3))).accepted


def test_rows_without_keys_hold_no_fills() -> None:
    from cubridge.engine.dense import spec_values

    q, kv = torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 0, 4)
    values = spec_values(full_attention().spec, q, kv, kv, {}, derivatives=False)
    assert not filled_rows(values).any()
