"""Kernel texts that did not come with the package, compiled and run in a child process."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.ptx.device import SCHEDULES
from cubridge.driver.kernels import PACKAGED
from cubridge.driver.sandbox.process import Limits, RunsJobs, Sandbox
from cubridge.ir.diagnostics import CuError
from cubridge.judge.runners import Inputs
from cubridge.judge.tools import EMULATED_HEAD_DIM, Here, build_emulated, compile_text, emulate, launch

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText
    from cubridge.backend.ptx.machine import Schedule
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.judge.attention import Outputs
    from cubridge.judge.findings import Compiled
    from cubridge.judge.runners import Given, TextRunner
    from cubridge.judge.tools import Tools


_OUT_OF_TIME = 6
"""Exit code of a run that does not end."""


@dataclass(frozen=True, slots=True)
class SandboxRunner:
    """A kernel in the child process, as one job for each launch."""

    stage: str
    launched: Callable[[Inputs, bool], Outputs]

    def run(self, problem: Given, lse: bool) -> Outputs:
        return self.launched(Inputs.of(problem), lse)


@dataclass(frozen=True, slots=True)
class SandboxTools:
    """`gpu_sandbox` has no limit of address space. `is_reply`: what does not end is an answer that is refused like any other."""

    sandbox: RunsJobs
    gpu_sandbox: Sandbox = field(default_factory=lambda: Sandbox(Limits(bytes=None)))
    is_reply: bool = False

    def compile(self, text: KernelText, dtype: str, head_dim: int) -> Compiled:
        return self.sandbox.run(compile_text, text, dtype, head_dim)

    def emulator(
        self,
        text: KernelText,
        dtype: str,
        head_dim: int = EMULATED_HEAD_DIM,
        schedules: tuple[Schedule, ...] = SCHEDULES,
    ) -> TextRunner:
        form = text, dtype, head_dim, schedules
        self.sandbox.run(build, *form)
        return SandboxRunner("emulator", lambda inputs, lse: self._emulated(*form, inputs, lse))

    def _emulated(
        self, text: KernelText, dtype: str, head_dim: int, schedules: tuple[Schedule, ...], inputs: Inputs, lse: bool
    ) -> Outputs:
        try:
            return self.sandbox.run(run_emulated, text, dtype, head_dim, schedules, inputs, lse)
        except CuError as error:
            if self.is_reply and error.exit_code == _OUT_OF_TIME:
                raise CuError(*error.diagnostics) from error
            raise

    def gpu(self, text: KernelText) -> TextRunner:
        find_gpu()
        return SandboxRunner("gpu", lambda inputs, lse: self.gpu_sandbox.run(run_launched, text, inputs, lse))

    def close(self) -> None:
        self.gpu_sandbox.close()


_SANDBOX: Final = Sandbox()
_OWN: Final = SandboxTools(_SANDBOX)
"""For texts of users: children that live until this process ends, since a start takes seconds."""
atexit.register(_SANDBOX.close)
atexit.register(_OWN.close)


def tools_of(kernel: ChosenKernel, is_by_rules: bool = True) -> Tools:
    """For `kernel` and texts made of it: this process, if it came with the package and rules made them; else a child."""
    return Here() if kernel.name in PACKAGED and is_by_rules else _OWN


# ---- jobs ------------------------------------------------------------------------------------------------------------


def build(text: KernelText, dtype: str, head_dim: int, schedules: tuple[Schedule, ...]) -> None:
    """For the emulator. Errors: as `build_emulated`."""
    build_emulated(text, dtype, head_dim, schedules)


def run_emulated(
    text: KernelText, dtype: str, head_dim: int, schedules: tuple[Schedule, ...], inputs: Inputs, lse: bool
) -> Outputs:
    """(out, lse). Errors: CU83x; exit code 6 for one that does not end."""
    return emulate(text, dtype, head_dim, schedules).run(inputs, lse)


def run_launched(text: KernelText, inputs: Inputs, lse: bool) -> Outputs:
    """(out, lse) on the GPU. Errors: CU82x."""
    return launch(text).run(inputs, lse)
