"""The ways to run a kernel: its CuIR on the value engine, its text on the emulator, its machine code on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cubridge.backend.launch.runtime import LSE, OUTPUT
from cubridge.ir.diagnostics import CuError, Diagnostic

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.runtime import Launcher
    from cubridge.ir.nodes import Kernel
    from cubridge.judge.attention import Captures, Outputs
    from cubridge.judge.problem import Problem


class Runner(Protocol):
    """`stage`: how reports name it. `run` gives (out, lse), lse None if not `lse`."""

    @property
    def stage(self) -> str: ...

    def run(self, problem: Problem, lse: bool) -> Outputs: ...


class Given(Protocol):
    """What a launch reads."""

    @property
    def q(self) -> Tensor: ...

    @property
    def k(self) -> Tensor: ...

    @property
    def v(self) -> Tensor: ...

    @property
    def captures(self) -> Captures: ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a launch reads, and nothing that is expected of it."""

    q: Tensor
    k: Tensor
    v: Tensor
    captures: Captures

    @staticmethod
    def of(given: Given) -> Inputs:
        return Inputs(given.q, given.k, given.v, given.captures)


class TextRunner(Runner, Protocol):
    """One of a text, which needs no problem."""

    def run(self, problem: Given, lse: bool) -> Outputs: ...


LAUNCH_CONSTANTS = {"SM_COUNT": 2, "L2_BYTES": 1 << 25}
"""What a machine gives host formulas, where no machine is there: few blocks, so that each gets several work tiles."""


@dataclass(frozen=True, slots=True)
class ValueRunner:
    """CuIR on the value engine."""

    kernel: Kernel
    stage: str = "value engine"

    def run(self, problem: Problem, lse: bool) -> Outputs:
        from cubridge.engine.values.engine import run_values
        from cubridge.engine.values.launch import Launch

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
    """A kernel text through its launch contract, on whatever device the launcher has. Inputs are copies and outputs start as
    NaN; the kernel must leave its inputs alone, and give the same bits in each of its `runs`. Errors: CU845."""

    launcher: Launcher
    stage: str
    runs: int = 1

    def run(self, problem: Given, lse: bool) -> Outputs:
        import torch

        device = self.launcher.device.torch_device
        given = {"q": problem.q, "k": problem.k, "v": problem.v}
        copies = ({n: x.to(device, copy=True) for n, x in given.items()} for _ in range(self.runs))
        first, *others = [self._launch(inputs, problem, lse) for inputs in copies]
        for name, output in first.items():
            if any(not torch.equal(output.view(torch.uint8), other[name].view(torch.uint8)) for other in others):
                raise CuError(Diagnostic("CU845", f"two runs of one launch give two `{name}`"))
        return first[OUTPUT], first.get(LSE)

    def _launch(self, inputs: dict[str, Tensor], problem: Given, lse: bool) -> dict[str, Tensor]:
        """The outputs of one run, on the CPU."""
        import torch

        before = {name: x.clone() for name, x in inputs.items()}
        outputs = {OUTPUT: torch.full_like(inputs["q"], torch.nan)}
        if lse:
            outputs[LSE] = inputs["q"].new_full(inputs["q"].shape[:3], torch.nan, dtype=torch.float32)
        self.launcher.run_into(inputs, problem.captures, outputs)
        for name, x in inputs.items():
            if not torch.equal(x, before[name]):
                raise CuError(Diagnostic("CU845", f"the kernel writes into its input `{name}`"))
        return {name: output.cpu() for name, output in outputs.items()}
