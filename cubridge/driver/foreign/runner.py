"""A foreign kernel as a way to run attention, for checks against a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cubridge.backend.ptx.machine import Schedule
from cubridge.driver.foreign.build import Built
from cubridge.driver.foreign.launch import launch_of, outputs_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.judge.problem import Problem

_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class ForeignRunner:
    """On the emulator, under two unlike schedules."""

    built: Built
    contract: ForeignContract
    stage: str = "emulator"

    def run(self, problem: Problem, lse: bool) -> tuple[Tensor, Tensor | None]:
        """Errors: CU832 to CU837."""
        inputs = {"q": problem.q, "k": problem.k, "v": problem.v}
        launch = launch_of(self.built, self.contract, problem.shape, inputs)
        made = [self.built.machine.run(launch.ptx, s, _SECONDS) for s in (Schedule.FORWARD, Schedule.HOSTILE)]
        if made[0] != made[1]:
            raise CuError(Diagnostic("CU833", "emulator: race: the outputs differ from schedule to schedule"))
        outputs = outputs_of(self.contract, problem.shape, made[0])
        return outputs["o"], outputs.get("lse") if lse else None
