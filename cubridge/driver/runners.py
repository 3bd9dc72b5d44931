"""The ways to run a kernel: its CuIR on the value engine, its text on the emulator, its machine code on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.runtime import Launcher
    from cubridge.driver.problem import Problem
    from cubridge.ir.nodes import Kernel


class Runner(Protocol):
    """`stage`: how reports name it. `run` gives (out, lse), lse None if not `lse`."""

    @property
    def stage(self) -> str: ...

    def run(self, problem: Problem, lse: bool) -> tuple[Tensor, Tensor | None]: ...


LAUNCH_CONSTANTS = {"SM_COUNT": 2, "L2_BYTES": 1 << 25}
"""What a machine gives host formulas, where no machine is there: few blocks, so that each gets several work tiles."""


@dataclass(frozen=True, slots=True)
class ValueRunner:
    """CuIR on the value engine."""

    kernel: Kernel
    stage: str = "value engine"

    def run(self, problem: Problem, lse: bool) -> tuple[Tensor, Tensor | None]:
        from cubridge.ir.values import run_values
        from cubridge.ir.values_launch import Launch

        counters = deals_unequal_work(self.kernel)
        launch = Launch(problem.shape, problem.captures, LAUNCH_CONSTANTS, want_lse=lse, counters=counters)
        return run_values(self.kernel, (problem.q, problem.k, problem.v), launch)


def deals_unequal_work(kernel: Kernel) -> bool:
    """True where the key sequence reads its query tile; a launch then hands work out by counters."""
    from cubridge.ir.nodes import Attr, Name
    from cubridge.ir.walk import walk

    return any(isinstance(node, Attr) and node.base == Name("tile") for node in walk(kernel.region("key_sequence")))


@dataclass(frozen=True, slots=True)
class LaunchRunner:
    """A kernel text through its launch contract, on whatever device the launcher has."""

    launcher: Launcher
    stage: str

    def run(self, problem: Problem, lse: bool) -> tuple[Tensor, Tensor | None]:
        device = self.launcher.device.torch_device
        q, k, v = (x.to(device) for x in (problem.q, problem.k, problem.v))
        got = self.launcher(q, k, v, problem.captures, lse=lse)
        return (got[0].cpu(), got[1].cpu()) if isinstance(got, tuple) else (got.cpu(), None)
