"""Judges CUDA text that a model wrote: by what it may hold, by lifting where that is possible, by the compiler, by the emulator and
by the GPU where there is one; all in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cubridge.driver.lift import lift_kernel
from cubridge.driver.model.guard import Guard, read_text
from cubridge.driver.model.numbers import Number, numbers_in
from cubridge.driver.model.policy import Accept, check_runs
from cubridge.driver.transfer import check_structure
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import FloatLit, IntLit
from cubridge.ir.spec import DEFAULT_SHAPE
from cubridge.ir.walk import walk
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.plan import LONGEST_RUN, Case, emulator_cases, gpu_cases, past
from cubridge.judge.tools import EMULATED_HEAD_DIM
from cubridge.judge.well_formed import verify_kernel

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText
    from cubridge.backend.text.lower import Patched
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.driver.model.judge import ValueJudge
    from cubridge.driver.sandbox.texts import SandboxTools
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.source import SourceFile
    from cubridge.judge.findings import CaseResult
    from cubridge.judge.runners import Runner

NUMBERS = "CU844"
"""Code of texts that compute other values."""
_SMALL: Final = 16
"""Numbers up to here count things."""


@dataclass(frozen=True, slots=True)
class TextJudge:
    """`original`: the CuIR of the kernel as it was; `target`: what the text must say; `values`: the judge of CuIR."""

    kernel: ChosenKernel
    original: Kernel
    target: Kernel
    values: ValueJudge
    tools: SandboxTools
    dtype: str
    head_dim: int
    cases: Sequence[Case] | None = None

    def guard(self, patched: Patched, source: SourceFile) -> KernelText:
        """The text under its contract, if it holds nothing that it may not. Errors: CU717, CU420, CU45x."""
        instance = self.kernel.instantiation(self.dtype, self.head_dim)
        Guard.of(self.kernel, instance).check(self.kernel, source, patched.regions_changed, instance)
        return self.kernel.with_text(source)

    def compile(self, text: KernelText) -> str:
        """What the compiler says. Errors: CU80x."""
        try:
            compiled = self.tools.compile(text, self.dtype, self.head_dim)
        except CuError as error:
            return _missing(error)
        return f"{compiled.arch}: {compiled.registers} registers, {compiled.spill_bytes} bytes spilled"

    def emulate(self, text: KernelText, past_numbers: bool = False) -> str:
        """`past_numbers`: at lengths past every number of the text too. Errors: CU83x; CU844 where the numbers differ."""
        try:
            runner = self.tools.emulator(text, self.dtype)
        except CuError as error:
            return _missing(error)
        spec = self.values.attention.spec
        cases = [*(self.cases or emulator_cases(spec, EMULATED_HEAD_DIM))]
        longest = max(min(c.shape.Lq, c.shape.Lk) for c in cases)
        read = self._numbers(text.source) if past_numbers else set[Number]()
        cases += [
            c for n in sorted(read) if longest <= n <= LONGEST_RUN for c in past(spec, int(n), EMULATED_HEAD_DIM)
        ][-2:]
        return self._run(runner, cases)

    def launch(self, text: KernelText) -> str:
        """On the GPU. Errors: as `emulate`."""
        try:
            runner = self.tools.gpu(text)
        except CuError as error:
            return _missing(error)
        return self._run(runner, gpu_cases(self.values.attention.spec, DEFAULT_SHAPE))

    def _run(self, runner: Runner, cases: Sequence[Case]) -> str:
        checker = Checker(self.values.attention, self.dtype, approximations(self.target))
        results: list[CaseResult] = []
        for case in cases:
            results += checker.run(runner, [case])
            if not results[-1].accepted:
                raise CuError(_differs(results[-1]))
        worst = max(r.worst for r in results)
        return f"{runner.stage}: {len(results)} runs right, worst error {worst:.3f} of its bound"

    def lift(self, source: SourceFile) -> Kernel | None:
        """The CuIR of the text, judged as a target is; None for a text outside the vocabulary of lifting, which runs alone judge.
        Errors: what CuIR is refused for; CU725 after what lifting said, where runs alone are not accepted."""
        run = self.values.sandbox.run
        try:
            lifted = run(lift_patched, self.kernel, source, self.original, self.dtype, self.head_dim)
        except CuError as error:
            if not any(d.code.startswith("CU42") for d in error.diagnostics):
                raise
            _check_unread(error, self.values.accept)
            self._check_numbers(source)
            return None
        self.values.judge(lifted)
        return lifted

    def _check_numbers(self, source: SourceFile) -> None:
        """Text that lifting cannot read may hold a case for sizes that no run has: it has no numbers but those of the kernel as it
        was and of the target. Errors: CU717."""
        known = {abs(n.value) for n in walk(self.target) if isinstance(n, IntLit | FloatLit)}
        known |= self._numbers(self.kernel.text.source)
        own = sorted(n for n in self._numbers(source) - known if n > _SMALL)
        if own:
            message = (
                f"lifting cannot read this text, and it holds {own[0]}, which neither the kernel nor the target has"
            )
            raise CuError(Diagnostic("CU717", message))

    def _numbers(self, source: SourceFile) -> set[Number]:
        instance = self.kernel.instantiation(self.dtype, self.head_dim)
        return numbers_in(read_text(self.kernel, source, instance).unit.main)


def lift_patched(kernel: ChosenKernel, source: SourceFile, original: Kernel, dtype: str, head_dim: int) -> Kernel:
    """A job: a text by the rules of lifting; gives its CuIR if it verifies and has the original's structure.
    Errors: CU4xx where the text is outside the vocabulary; CU2xx."""
    lifted = lift_kernel(kernel, dtype, head_dim, source).kernel
    check_structure(original, lifted)
    verify_kernel(lifted)
    return lifted


def _check_unread(error: CuError, accept: frozenset[Accept]) -> None:
    try:
        check_runs("lifting cannot read this text", accept)
    except CuError as refused:
        raise CuError(*refused.diagnostics, *error.diagnostics) from None


def _missing(error: CuError) -> str:
    """A tool that is not installed judges nothing, and is named."""
    if error.exit_code != 5:
        raise error
    return f"not done: {error.diagnostics[0].message}"


def _differs(result: CaseResult) -> Diagnostic:
    where = f"{result.stage}, at {result.shape} (B, Hq, Hk, Lq, Lk, D), {result.inputs} inputs"
    if result.worst <= 1.0:
        return Diagnostic(NUMBERS, f"{where}: lse is off by {result.lse or 0.0:.3g} times what rounding explains")
    return Diagnostic(NUMBERS, f"{where}: {result.detail}")
