"""An adaptation without its checks: the bench makes its own, on the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge.driver.reference import read_reference

from cubridge.backend.device import KernelText
from cubridge.driver.check import Checker, approximations
from cubridge.driver.kernels import ChosenKernel, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.plan import Case, gpu_cases, mutant_cases
from cubridge.driver.transfer import transfer
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import DEFAULT_SHAPE

if TYPE_CHECKING:
    from cubridge.driver.attention import Attention
    from cubridge.driver.problem import Problem


@dataclass(frozen=True, slots=True)
class Adapted:
    """`text`: the patched kernel. `cases`, `mutant_cases`: the problems that a check on a GPU runs."""

    attention: Attention
    kernel: ChosenKernel
    text: KernelText
    checker: Checker
    cases: tuple[Case, ...]
    mutant_cases: tuple[Case, ...]

    def problem(self, case: Case) -> Problem:
        return self.checker.problem(case)

    def with_source(self, source: SourceFile) -> KernelText:
        """Another text under the same contract."""
        return self.kernel.with_text(source)


def adapt_unchecked(path: Path, kernel: str, dtype: str, head_dim: int) -> Adapted:
    """Read the reference, lift, transfer, lower. Errors: those of each stage."""
    attention = read_reference(path, None, None).attention
    chosen = choose_kernel(kernel)
    lifted = lift_kernel(chosen, dtype, head_dim)
    target = transfer(lifted.kernel, attention.spec).kernel
    patched = lower_kernel(chosen, lifted, target, dtype, head_dim)
    text = chosen.with_text(patched_source(patched))
    checker = Checker(attention, dtype, approximations(target))
    shape = replace(DEFAULT_SHAPE, D=head_dim)
    cases = gpu_cases(attention.spec, shape)
    return Adapted(attention, chosen, text, checker, tuple(cases), tuple(mutant_cases(attention.spec, head_dim)))
