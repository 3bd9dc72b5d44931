"""The emulator on faults that the engines let pass: the CUDA text with the fault written into it, beside the text as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cubridge.backend.text.patch import apply_edits
from cubridge.driver.lift import lift_kernel
from cubridge.frontend.cuda.text import ParsedText, folder_headers, read_unit
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile
from cubridge.judge.faults.edits import Unsayable, fault_edits
from cubridge.judge.runners import Inputs

if TYPE_CHECKING:
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.ir.nodes import Kernel
    from cubridge.judge.attention import Outputs
    from cubridge.judge.faults.catalog import Fault
    from cubridge.judge.faults.verdicts import Trial
    from cubridge.judge.tools import Tools


@dataclass(frozen=True, slots=True)
class FaultTexts:
    """Writes faults of `source`, the CuIR of this instantiation of `kernel`, into its text."""

    kernel: ChosenKernel
    dtype: str
    head_dim: int
    source: Kernel
    text: ParsedText

    @staticmethod
    def of(kernel: ChosenKernel, dtype: str, head_dim: int, source: Kernel) -> FaultTexts:
        macros = dict(kernel.instantiation(dtype, head_dim).macros)
        unit = read_unit(kernel.text.source, macros, folder_headers(*kernel.text.include_dirs))
        return FaultTexts(kernel, dtype, head_dim, source, unit.main)

    def write(self, fault: Fault) -> SourceFile:
        """The text that lifts to the kernel of `fault`, node by node. Raises Unsayable."""
        original = self.kernel.text.source
        edits = fault_edits(self.text, self.source, fault)
        try:
            edited = SourceFile(original.name, apply_edits(original, edits))
            lifted = lift_kernel(self.kernel, self.dtype, self.head_dim, edited).kernel
        except CuError as error:
            raise Unsayable(f"the edited text is refused: {error.diagnostics[0].message}") from error
        if lifted != fault.kernel:
            raise Unsayable("the edited text says something else")
        return edited


@dataclass(frozen=True, slots=True)
class FaultEmulator:
    """`expected`: launches, each with the bits that the kernel itself gives on the emulator."""

    tools: Tools
    texts: FaultTexts
    expected: tuple[tuple[Inputs, Outputs], ...]

    @staticmethod
    def of(tools: Tools, texts: FaultTexts, trials: Sequence[Trial]) -> FaultEmulator:
        """Runs the kernel itself in the trials that launch anything.
        Errors: CU83x, what the emulator says of the kernel; of them CU830, exit code 5: there is no emulator."""
        runner = tools.emulator(texts.kernel.text, texts.dtype, texts.head_dim)
        given = [(Inputs(*t.inputs, {}), t) for t in trials if 0 not in t.launch.shape.sizes().values()]
        return FaultEmulator(tools, texts, tuple((i, runner.run(i, t.launch.want_lse)) for i, t in given))

    def find(self, fault: Fault) -> Diagnostic | None:
        """What the emulator has against the text with `fault` in it, from its compilation to its outputs; None if all of them
        are those of the kernel itself, bit by bit. Raises Unsayable."""
        text = self.texts.kernel.with_text(self.texts.write(fault))
        try:
            runner = self.tools.emulator(text, self.texts.dtype, self.texts.head_dim)
            return next(
                filter(None, (_difference(runner.run(i, e[1] is not None), e, i) for i, e in self.expected)), None
            )
        except CuError as error:
            if error.exit_code == 5:
                raise
            return error.diagnostics[0]


def _difference(got: Outputs, expected: Outputs, inputs: Inputs) -> Diagnostic | None:
    for name, a, b in zip(("out", "lse"), got, expected, strict=True):
        if a is not None and b is not None and not torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
            shapes = f"q {list(inputs.q.shape)}, k {list(inputs.k.shape)}"
            return Diagnostic("CU844", f"emulator: {name} is another value at {shapes}")
    return None
