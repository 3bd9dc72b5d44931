"""Judges CuIR that a model wrote: like any proposal, in a child process, and so that what fails can be mended from what is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cubridge.driver.model.checks import NUMBERS, check_key_sequence, find_blame, run_values
from cubridge.driver.model.policy import Accept, check_proved, prove_target
from cubridge.engine.threads import one_thread
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.printer import print_function
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.long_lengths import check_long_lengths

if TYPE_CHECKING:
    from cubridge.driver.sandbox.process import RunsJobs
    from cubridge.ir.nodes import Kernel
    from cubridge.judge.attention import Attention
    from cubridge.judge.bound import Judgement
    from cubridge.judge.plan import Case
    from cubridge.judge.problem import Problem

_REGION_OF: Final = {"kv_range": "key_sequence", "normalizer": "row_probs"}
"""Where the parts that `blame` names stand, if they are no region of CuIR."""


@dataclass(slots=True)
class ValueJudge:
    """The value engine against a reference, small problems first. They are made once for all the kernels that are judged."""

    sandbox: RunsJobs
    attention: Attention
    dtype: str
    cases: Sequence[Case]
    accept: frozenset[Accept] = frozenset()
    _checkers: dict[tuple[str, ...], Checker] = field(default_factory=dict[tuple[str, ...], Checker])

    def judge(self, kernel: Kernel) -> None:
        """Errors: CU316, the first case that differs, with the region that is to blame; CU317; CU318 and CU724 for what is not
        proved; CU3xx and CU25x where a run cannot go on; CU714 where agreement would show nothing; CU72x as the sandbox."""
        with one_thread():
            problems = self._problems(kernel)
        _check_conclusive(problems)
        for problem in problems:
            out, lse = self.sandbox.run(run_values, kernel, inputs_of(problem))
            judgement = problem.judge(out, lse)
            if not judgement.accepted:
                raise CuError(self._fault(kernel, problem, judgement))
        self.sandbox.run(check_key_sequence, kernel)
        self.sandbox.run(check_long_lengths, kernel, self.attention.spec)
        check_proved(self.sandbox.run(prove_target, kernel, self.attention.spec), self.accept)

    def _problems(self, kernel: Kernel) -> list[Problem]:
        """What a kernel may differ by depends on the functions that it approximates."""
        approximated = approximations(kernel)
        key = tuple(sorted(approximated))
        if key not in self._checkers:
            self._checkers[key] = Checker(self.attention, self.dtype, approximated)
        return self._checkers[key].problems(sorted(self.cases, key=_size))

    def _fault(self, kernel: Kernel, problem: Problem, judgement: Judgement) -> Diagnostic:
        at = f"at {problem.shape} (B, Hq, Hk, Lq, Lk, D), {problem.inputs} inputs"
        if judgement.worst <= 1.0:
            message = (
                f"lse differs from the reference's {at}, by {judgement.lse_error:.3g} times what rounding explains"
            )
            return _in_region(kernel, "row_finalize", message)
        values = f"{judgement.value:.6g} instead of {judgement.expected:.6g} at [b, h, i, e] = {[*judgement.where]}"
        message = f"the output differs from the reference's {at}: {values}"
        b, h, i = judgement.where[:3]
        try:
            part, why = self.sandbox.run(find_blame, kernel, inputs_of(problem), self.attention.spec, (b, h, i))
        except CuError:
            return Diagnostic(NUMBERS, message)
        if part == "score" and not self.attention.spec.shift:
            why += " (if all differ by one constant, the weight may hold it instead)"
        return _in_region(kernel, _REGION_OF.get(part, part), f"{message}; {part}: {why}")


def inputs_of(problem: Problem) -> Problem:
    """A problem without what is expected of it, which a child process has no use for; whether LSE is wanted stays."""
    nothing = problem.out.new_empty(0)
    lse = None if problem.lse is None else nothing
    return replace(problem, out=nothing, bound=nothing, lse_bound=nothing, lse=lse)


def _size(case: Case) -> int:
    return case.shape.B * case.shape.Hq * case.shape.Lq * case.shape.Lk


def _in_region(kernel: Kernel, region: str, message: str) -> Diagnostic:
    """A pipeline's author does not know what it made of a region."""
    text = print_function(kernel.region(region))
    return Diagnostic(NUMBERS, message, help=f"the region of the target is\n{text}")


def _check_conclusive(problems: Sequence[Problem]) -> None:
    """Rows that see no key are 0 in every kernel; if all are, or the reference gives no numbers, any kernel agrees."""
    if not any(bool((p.out.isfinite() & (p.out != 0)).any()) for p in problems):
        message = "no problem of the check has a row with a result, so that any kernel would agree"
        raise CuError(Diagnostic("CU714", message, help="give example sizes at which rows see keys, by --shape"))
