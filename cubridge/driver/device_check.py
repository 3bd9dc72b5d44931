"""Compiled kernels judged on their device, before the first result is handed out. What was accepted is noted, by content."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from cubridge.backend.compile.cache import content_key
from cubridge.backend.launch.captured import on_device
from cubridge.driver.reference import means_the_same
from cubridge.engine.dense_gradient import Gradients
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.spec import Shape
from cubridge.ir.types import DTYPES, DType
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from cubridge.judge.gradient_runs import saved
from cubridge.judge.plan import Case
from cubridge.judge.runners import LaunchRunner
from cubridge.passes.constant_reference import has_constant_reference

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.backward import BackwardLauncher
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.backend.launch.device import LoadedKernel
    from cubridge.backend.launch.runtime import Launcher
    from cubridge.driver.adapted import Adapted
    from cubridge.driver.backward import Lowered
    from cubridge.ir.spec import AttentionSpec

Cases = Callable[["AttentionSpec", Shape], list[Case]]


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """Runs a compiled form against the oracle. What was accepted once is noted in `folder`, by content."""

    adapted: Adapted
    cases: Cases
    folder: Path

    def __call__(self, launcher: Launcher, kernel: LoadedKernel, head_dim: int) -> None:
        """Errors: CU828 with the first problem that the kernel gets wrong; CU824 for an element type in which the reference is
        another."""
        _outside(lambda: self._judge(launcher, kernel, head_dim))

    def _judge(self, launcher: Launcher, kernel: LoadedKernel, head_dim: int) -> None:
        traced = self.adapted.reference.traced
        dtype = _name(kernel.instantiation.dtype)
        if dtype != self.adapted.dtype and not means_the_same(self.adapted.reference, dtype):
            message = f"in {dtype} the reference computes something else than in {self.adapted.dtype}"
            raise Refused(Diagnostic("CU824", message, help=f'adapt it with dtype="{dtype}"'))
        if dtype == "fp16" and dtype != self.adapted.dtype and has_constant_reference(traced.spec, self.adapted.target):
            message = "the kernel takes no row maximum, and its weights leave the range of fp16"
            raise Refused(Diagnostic("CU824", message, help='adapt the reference with dtype="fp16"'))
        note = _Note(self.folder, content_key(kernel.key, launcher.text.contract, dtype, head_dim, traced.spec))
        if note.is_there():
            return
        checker = Checker(self.adapted.reference.attention, dtype, approximations(self.adapted.target))
        shape = replace(self.adapted.shape, D=head_dim)
        for result in checker.run(LaunchRunner(launcher, "device", runs=2), self.cases(traced.spec, shape)):
            if not result.accepted:
                where = f"{result.shape}, {result.inputs}"
                raise _wrong("kernel", where, f"error {result.worst:.3g} times its bound {result.detail}")
        note.write()


@dataclass(frozen=True, slots=True)
class PassCheck:
    """Runs a compiled backward pass against PyTorch's own gradients in fp64, as `DeviceCheck` does a forward kernel."""

    adapted: Adapted
    lowered: Lowered
    cases: Callable[[AttentionSpec, int], list[Case]]
    folder: Path

    def __call__(self, launcher: BackwardLauncher, dtype: DType, head_dim: int) -> None:
        """Errors: CU828 with the first gradient that the kernels get wrong, or whose dk or dv differ from run to run."""
        _outside(lambda: self._judge(launcher, dtype, head_dim))

    def _judge(self, launcher: BackwardLauncher, dtype: DType, head_dim: int) -> None:
        attention = self.adapted.reference.attention
        keys = [kernel.key for kernel in launcher.load(dtype, head_dim)]
        contracts = [each.text.contract for each in launcher.launchers]
        note = _Note(self.folder, content_key(keys, contracts, _name(dtype), head_dim, attention.spec))
        if note.is_there():
            return
        approximated = approximations(self.lowered.targets.pairs)
        for case in self.cases(attention.spec, head_dim):
            problem = make_gradient_problem(
                attention, self.lowered.gradient, case.inputs, case.shape, case.seed, _name(dtype), approximated
            )
            self._judge_problem(launcher, problem)
        note.write()

    def _judge_problem(self, launcher: BackwardLauncher, problem: GradientProblem) -> None:
        out, lse = saved(self.adapted.reference.attention, problem)
        first, second = (run_on_device(launcher, problem, out, lse) for _ in range(2))
        where = f"{problem.shape}, {problem.inputs}"
        for name, judgement in problem.judge(first).items():
            if not judgement.accepted:
                raise _wrong("backward pass", where, f"`{name}` has error {judgement.worst:.3g} times its bound")
        if not (torch.equal(first.dk, second.dk) and torch.equal(first.dv, second.dv)):
            raise _wrong("backward pass", where, "two runs give two dk or dv")


def run_on_device(launcher: BackwardLauncher, problem: GradientProblem, out: Tensor, lse: Tensor) -> Gradients:
    """The gradients of a problem, on the CPU. `out`, `lse`: what the forward pass saves of it."""
    device, p = launcher.pairs.device.torch_device, problem
    q, k, v, o, rows, dout = (x.to(device) for x in (p.q, p.k, p.v, out, lse, p.dout))
    dlse = None if p.dlse is None else p.dlse.to(device)
    captures = on_device(cast("dict[str, CaptureValue]", p.captures), device)
    return Gradients(*(x.cpu() for x in launcher(q, k, v, o, rows, dout, dlse, captures)))


@dataclass(frozen=True, slots=True)
class _Note:
    """That something was right once."""

    folder: Path
    key: str

    @property
    def path(self) -> Path:
        return self.folder / f"{self.key}.checked"

    def is_there(self) -> bool:
        return self.path.exists()

    def write(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        except OSError:
            return  # checked again next time


def _outside(judge: Callable[[], None]) -> None:
    """Bounds are derived by autograd, which torch switches off inside an operator: for this thread alone."""
    with ThreadPoolExecutor(1) as outside:
        outside.submit(judge).result()


def _name(dtype: DType) -> str:
    return next(name for name, d in DTYPES.items() if d == dtype)


def _wrong(what: str, where: str, how: str) -> CuError:
    message = f"the compiled {what} is wrong at {where}: {how}"
    help_ = "this is a fault of the tool; no result was handed out"
    return CuError(Diagnostic("CU828", message, help=help_), exit_code=3)
