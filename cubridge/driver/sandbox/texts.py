"""Texts that a model wrote, compiled and run in a child process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cubridge.backend.gpu.device import find_gpu
from cubridge.driver.sandbox.process import Limits, RunsJobs, Sandbox
from cubridge.ir.diagnostics import CuError
from cubridge.judge.tools import compile_text, emulate, launch

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.device import KernelText
    from cubridge.judge.findings import Compiled
    from cubridge.judge.problem import Problem
    from cubridge.judge.runners import Runner

    Outputs = tuple[Tensor, Tensor | None]


_OUT_OF_TIME = 6
"""Exit code of a run that does not end."""


@dataclass(frozen=True, slots=True)
class SandboxRunner:
    """A kernel in the child process, as one job for each problem."""

    stage: str
    values: Callable[[Problem], Outputs]

    def run(self, problem: Problem, lse: bool) -> Outputs:
        out, statistics = self.values(inputs_of(problem))
        return out, statistics if lse else None


@dataclass(frozen=True, slots=True)
class SandboxTools:
    """`gpu_sandbox` has no limit of address space."""

    sandbox: RunsJobs
    gpu_sandbox: Sandbox = field(default_factory=lambda: Sandbox(Limits(bytes=None)))

    def compile(self, text: KernelText, dtype: str, head_dim: int) -> Compiled:
        return self.sandbox.run(compile_text, text, dtype, head_dim)

    def emulator(self, text: KernelText, dtype: str) -> Runner:
        self.sandbox.run(build, text, dtype)
        return SandboxRunner("emulator", lambda problem: self.sandbox.run(run_emulated, text, dtype, problem))

    def gpu(self, text: KernelText) -> Runner:
        find_gpu()
        return SandboxRunner("gpu", lambda problem: self.gpu_sandbox.run(run_launched, text, problem))

    def close(self) -> None:
        self.gpu_sandbox.close()


def inputs_of(problem: Problem) -> Problem:
    """A problem without what is expected of it, which a child process has no use for; whether LSE is wanted stays."""
    nothing = problem.out.new_empty(0)
    lse = None if problem.lse is None else nothing
    return replace(problem, out=nothing, bound=nothing, lse_bound=nothing, lse=lse)


# ---- jobs ------------------------------------------------------------------------------------------------------------


def build(text: KernelText, dtype: str) -> None:
    """For the emulator. Errors: CU830 (exit code 5) without a C++ compiler, CU831."""
    emulate(text, dtype)


def run_emulated(text: KernelText, dtype: str, problem: Problem) -> Outputs:
    """(out, lse). Errors: CU83x; one that does not end is refused like any other."""
    try:
        return emulate(text, dtype).run(problem, lse=problem.lse is not None)
    except CuError as error:
        raise CuError(
            *error.diagnostics, exit_code=1 if error.exit_code == _OUT_OF_TIME else error.exit_code
        ) from error


def run_launched(text: KernelText, problem: Problem) -> Outputs:
    """(out, lse) on the GPU. Errors: CU82x."""
    return launch(text).run(problem, lse=problem.lse is not None)
