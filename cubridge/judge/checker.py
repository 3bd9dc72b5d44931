"""Does a kernel compute what its reference says? Runs it on problems with a known answer, and runs wrong kernels too, which
must fail: a check that accepts one of those is itself refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cubridge.engine.dense import spec_values
from cubridge.ir.diagnostics import CuError
from cubridge.ir.functions import FUNCTIONS, FunctionInfo
from cubridge.ir.nodes import Call
from cubridge.ir.walk import walk
from cubridge.judge.bound import VAGUE, Judgement
from cubridge.judge.findings import CaseResult, MutantResult
from cubridge.judge.mutants import mutants
from cubridge.judge.problem import Problem, make_problem

if TYPE_CHECKING:
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.spec import AttentionSpec, Shape
    from cubridge.judge.attention import Attention
    from cubridge.judge.plan import Case
    from cubridge.judge.runners import Runner

_STANDS_FOR = {"tanh_approx": "tanh", "log1p_unit": "log1p"}
"""Device functions with an error of their own, and the function of a spec that each computes."""
_DOES_NOT_RUN = ("CU473", "CU474", "CU490")
"""Extra inputs fail, the reference fails, or its extra inputs are out of the range they are used in."""


def approximations(kernel: Kernel) -> dict[str, FunctionInfo]:
    """Functions of a spec that `kernel` approximates, with the declared errors."""
    used = {node.fn for region in kernel.regions for node in walk(region) if isinstance(node, Call)}
    return {exact: FUNCTIONS[fast] for fast, exact in _STANDS_FOR.items() if fast in used}


def _not_told(_: str) -> None:
    pass


@dataclass(slots=True)
class Checker:
    """Checks kernels against one reference. Problems are made once and shared by all runners. `told` hears of each run;
    `passed_over`: shapes at which the reference or its extra inputs fail, and why."""

    attention: Attention
    dtype: str
    approximated: Mapping[str, FunctionInfo]
    told: Callable[[str], None] = _not_told
    passed_over: dict[Shape, CuError] = field(default_factory=dict["Shape", CuError])
    _problems: dict[Case, Problem] = field(default_factory=dict["Case", Problem])

    def problem(self, case: Case) -> Problem:
        if case not in self._problems:
            made = make_problem(self.attention, case.inputs, case.shape, case.seed, self.dtype, self.approximated)
            self._problems[case] = made
        return self._problems[case]

    def problems(self, cases: Iterable[Case]) -> list[Problem]:
        """The problems of `cases`, without those at shapes where the reference does not run; these may ask for more than its
        preconditions say. Errors: of the first, where none is left."""
        found: list[Problem] = []
        for case in cases:
            try:
                found.append(self.problem(case))
            except CuError as error:
                if error.diagnostics[0].code not in _DOES_NOT_RUN:
                    raise
                self.passed_over.setdefault(case.shape, error)
        if not found and self.passed_over:
            raise next(iter(self.passed_over.values()))
        return found

    def run(self, runner: Runner, cases: Iterable[Case]) -> tuple[CaseResult, ...]:
        """Each case on one runner. A fault of the kernel (a deadlock, a read out of range) is a result too.
        Errors: as `problems`."""
        return tuple(self._one(runner, problem) for problem in self.problems(cases))

    def _one(self, runner: Runner, problem: Problem) -> CaseResult:
        result = self._judged(runner, problem)
        self.told(f"{runner.stage}, {problem.inputs}")
        return result

    def _judged(self, runner: Runner, problem: Problem) -> CaseResult:
        shape = str(problem.shape)
        try:
            out, lse = runner.run(problem, lse=problem.lse is not None)
        except CuError as error:
            if error.exit_code >= 5:
                raise
            return CaseResult(runner.stage, shape, problem.inputs, float("inf"), False, str(error))
        judgement = problem.judge(out, lse)
        vague = problem.vagueness >= VAGUE
        accepted = judgement.accepted and not vague
        detail = _filled(problem) if accepted else _vague(problem) if vague else furthest_off(judgement)
        return CaseResult(
            runner.stage,
            shape,
            problem.inputs,
            judgement.worst,
            accepted,
            detail,
            judgement.lse_error,
            problem.reference,
            judgement.rows,
        )

    def wrong_specs(self, cases: Iterable[Case]) -> Iterator[tuple[str, AttentionSpec, Problem]]:
        """Mutants of the spec that move the result beyond the bound, each with a problem that shows it."""
        problems = self.problems(cases)
        for name, wrong in mutants(self.attention.spec):
            shown = next((p for p in problems if not self._accepts(wrong, p)), None)
            if shown is not None:
                yield name, wrong, shown

    def _accepts(self, wrong: AttentionSpec, problem: Problem) -> bool:
        values = spec_values(wrong, problem.q, problem.k, problem.v, problem.captures, derivatives=False)
        return problem.judge(values.out, values.lse).accepted

    def reject(self, name: str, problem: Problem, wrong: Runner) -> MutantResult:
        """Run a wrong kernel: its result must be told from the right one."""
        result = self._one(wrong, problem)
        return MutantResult(name, None if result.accepted else result.stage, _how_far(result))


def furthest_off(judgement: Judgement) -> str:
    """The element with the largest error, in words."""
    if judgement.worst <= 1.0:
        return "the output is right, the LSE is not"
    return f"at {judgement.where}: {judgement.value:.6g}, not {judgement.expected:.6g}"


def _filled(problem: Problem) -> str:
    """Rows that count for nothing."""
    return "" if problem.filled is None else f"{int(problem.filled.sum())} rows of fills alone are not compared"


def _vague(problem: Problem) -> str:
    return f"scores too large to compare: their errors in fp32 may move {problem.vagueness:.0%} of the output"


def _how_far(result: CaseResult) -> str:
    if result.worst <= 1.0:
        return f"LSE off by {result.lse or 0.0:.3g} times its bound"
    return f"error {result.worst:.3g} times the bound"
