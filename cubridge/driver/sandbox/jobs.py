"""What the child process does with what a model wrote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from cubridge.backend.launch.device import KernelText
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.driver.transfer import Transferred
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.source import SourceFile
    from cubridge.ir.spec import AttentionSpec, Shape
    from cubridge.judge.findings import Compiled
    from cubridge.judge.problem import Problem
    from cubridge.passes.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class RunPipeline:
    """A pipeline on the source kernel."""

    source: Kernel
    spec: AttentionSpec
    pipeline: Pipeline

    def run(self) -> Transferred:
        from cubridge.driver.transfer import transfer_before_checks

        return transfer_before_checks(self.source, self.spec, self.pipeline)


@dataclass(frozen=True, slots=True)
class VerifyTarget:
    """A target written out: static rules, the source's structure, the order engine. Errors: CU2xx, CU723."""

    source: Kernel
    target: Kernel

    def run(self) -> None:
        from cubridge.driver.model.judge import check_pads
        from cubridge.driver.transfer import check_structure
        from cubridge.judge.well_formed import verify_kernel, verify_statically

        verify_statically(self.target)
        check_structure(self.source, self.target)
        check_pads(self.target)
        verify_kernel(self.target)


@dataclass(frozen=True, slots=True)
class VerifyKernel:
    """A source kernel written out: static rules and the order engine. Errors: CU2xx, CU723."""

    kernel: Kernel

    def run(self) -> None:
        from cubridge.driver.model.judge import check_pads
        from cubridge.judge.well_formed import verify_kernel

        check_pads(self.kernel)
        verify_kernel(self.kernel)


@dataclass(frozen=True, slots=True)
class CheckKeySequence:
    """Errors: CU316."""

    kernel: Kernel

    def run(self) -> None:
        from cubridge.driver.model.judge import check_key_sequence

        check_key_sequence(self.kernel)


@dataclass(frozen=True, slots=True)
class CheckLongLengths:
    """Errors: CU317, and CU3xx where the kernel has no value."""

    kernel: Kernel
    spec: AttentionSpec

    def run(self) -> None:
        from cubridge.judge.long_lengths import check_long_lengths

        check_long_lengths(self.kernel, self.spec)


@dataclass(frozen=True, slots=True)
class RunValues:
    """A kernel on the value engine; gives (out, lse)."""

    kernel: Kernel
    problem: Problem

    def run(self) -> tuple[Tensor, Tensor | None]:
        from cubridge.judge.runners import ValueRunner

        return ValueRunner(self.kernel).run(self.problem, lse=self.problem.lse is not None)


@dataclass(frozen=True, slots=True)
class FindBlame:
    """Which region makes row (b, h, i) differ from a spec; gives its name and what is wrong."""

    kernel: Kernel
    problem: Problem
    spec: AttentionSpec
    row: tuple[int, int, int]

    def run(self) -> tuple[str, str]:
        from cubridge.engine.values.launch import Launch
        from cubridge.judge.blame import blame
        from cubridge.judge.runners import LAUNCH_CONSTANTS, deals_unequal_work

        launch = Launch(
            self.problem.shape, self.problem.captures, LAUNCH_CONSTANTS, want_lse=self.problem.lse is not None,
            counters=deals_unequal_work(self.kernel),
        )  # fmt: skip
        found = blame(self.kernel, self.spec, (self.problem.q, self.problem.k, self.problem.v), launch, self.row)
        return found.part, found.message


def inputs_of(problem: Problem) -> Problem:
    """A problem without what is expected of it, which a child process has no use for; whether LSE is wanted stays."""
    nothing = problem.out.new_empty(0)
    lse = None if problem.lse is None else nothing
    return replace(problem, out=nothing, bound=nothing, lse_bound=nothing, lse=lse)


# ---- CUDA text -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiftText:
    """A text that a model patched, by the rules of lifting; gives its CuIR if it verifies and has the source's structure.
    Errors: CU4xx where the text is outside the vocabulary; CU2xx."""

    kernel: ChosenKernel
    source: SourceFile
    original: Kernel
    dtype: str
    head_dim: int

    def run(self) -> Kernel:
        from cubridge.driver.lift import lift_kernel
        from cubridge.driver.transfer import check_structure
        from cubridge.judge.well_formed import verify_kernel

        lifted = lift_kernel(self.kernel, self.dtype, self.head_dim, self.source).kernel
        check_structure(self.original, lifted)
        verify_kernel(lifted)
        return lifted


@dataclass(frozen=True, slots=True)
class CompileText:
    """For the kernel's architecture. Errors: CU80x."""

    text: KernelText
    dtype: str
    head_dim: int

    def run(self) -> Compiled:
        from cubridge.judge.tools import compile_text

        return compile_text(self.text, self.dtype, self.head_dim)


@dataclass(frozen=True, slots=True)
class PrepareText:
    """Build for the emulator. Errors: CU830 (exit code 5) without a C++ compiler, CU831."""

    text: KernelText
    dtype: str

    def run(self) -> None:
        from cubridge.judge.tools import emulate

        emulate(self.text, self.dtype)


@dataclass(frozen=True, slots=True)
class AssembleText:
    """What the emulator's compiler makes of one instantiation, without places; "" for a text that it refuses."""

    text: KernelText
    dtype: str
    head_dim: int

    def run(self) -> str:
        from cubridge.backend.compile.compiler import listed_instantiations
        from cubridge.backend.emulate.build import assembly
        from cubridge.ir.types import DTYPES

        form = listed_instantiations(self.text.contract, DTYPES[self.dtype], self.head_dim)[0]
        return assembly(self.text.source, self.text.contract, form, self.text.include_dirs)


@dataclass(frozen=True, slots=True)
class EmulateText:
    """On the emulator; gives (out, lse). Errors: CU83x."""

    text: KernelText
    dtype: str
    problem: Problem

    def run(self) -> tuple[Tensor, Tensor | None]:
        from cubridge.judge.tools import emulate

        return emulate(self.text, self.dtype).run(self.problem, lse=self.problem.lse is not None)


@dataclass(frozen=True, slots=True)
class LaunchText:
    """On the GPU; gives (out, lse). Errors: CU82x."""

    text: KernelText
    problem: Problem

    def run(self) -> tuple[Tensor, Tensor | None]:
        from cubridge.judge.tools import launch

        return launch(self.text).run(self.problem, lse=self.problem.lse is not None)


@dataclass(frozen=True, slots=True)
class TimeFolder:
    """An output folder of `cuirc adapt` on the GPU; gives TFLOP/s over visible elements. Errors: CU820 without a GPU."""

    folder: Path
    shape: Shape

    def run(self) -> float:
        from cubridge.backend.gpu.device import find_gpu
        from cubridge.driver.folder import open_folder
        from cubridge.driver.suites.bench import bench

        device = find_gpu()
        adapted = open_folder(self.folder)
        measured = bench(adapted.reference.attention, adapted.text, adapted.dtype, self.shape, (), device)
        return measured.flops / measured.timings["cubridge"].median / 1e9
