"""Texts that a model wrote, compiled and run in a child process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cubridge.driver.sandbox.jobs import CompileText, EmulateText, LaunchText, PrepareText, inputs_of
from cubridge.driver.sandbox.process import Job, Limits, RunsJobs, Sandbox

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.device import KernelText
    from cubridge.judge.findings import Compiled
    from cubridge.judge.problem import Problem
    from cubridge.judge.runners import Runner

    Outputs = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, slots=True)
class SandboxRunner:
    """A kernel in the child process, as one job for each problem."""

    sandbox: RunsJobs
    stage: str
    job: Callable[[Problem], Job[Outputs]]

    def run(self, problem: Problem, lse: bool) -> Outputs:
        out, statistics = self.sandbox.run(self.job(inputs_of(problem)))
        return out, statistics if lse else None


@dataclass(frozen=True, slots=True)
class SandboxTools:
    """`gpu_sandbox` has no limit of address space."""

    sandbox: RunsJobs
    gpu_sandbox: Sandbox = field(default_factory=lambda: Sandbox(Limits(bytes=None)))

    def compile(self, text: KernelText, dtype: str, head_dim: int) -> Compiled:
        return self.sandbox.run(CompileText(text, dtype, head_dim))

    def emulator(self, text: KernelText, dtype: str) -> Runner:
        self.sandbox.run(PrepareText(text, dtype))
        return SandboxRunner(self.sandbox, "emulator", lambda problem: EmulateText(text, dtype, problem))

    def gpu(self, text: KernelText) -> Runner:
        from cubridge.backend.gpu.device import find_gpu

        find_gpu()
        return SandboxRunner(self.gpu_sandbox, "gpu", lambda problem: LaunchText(text, problem))

    def close(self) -> None:
        self.gpu_sandbox.close()
