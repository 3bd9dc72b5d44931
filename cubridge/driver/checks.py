"""Every check of one adaptation that this machine can run, in an order that keeps both cores busy."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from cubridge.backend.emulate import EmulatorDevice
from cubridge.backend.gpu import find_gpu
from cubridge.backend.runtime import Launcher
from cubridge.driver.check import Checker, approximations
from cubridge.driver.kernels import DTYPES
from cubridge.driver.long_lengths import check_long_lengths
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.plan import emulator_cases, gpu_cases, mutant_cases, value_cases
from cubridge.driver.readable import check_readable
from cubridge.driver.report import CaseResult, Compiled, MutantResult, Verdict
from cubridge.driver.runners import LaunchRunner, Runner, ValueRunner
from cubridge.driver.transfer import transfer_unverified
from cubridge.ir.diagnostics import CuError

if TYPE_CHECKING:
    from cubridge.backend.device import KernelText
    from cubridge.driver.attention import Attention
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.driver.problem import Problem
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.spec import Shape

T = TypeVar("T")

EMULATED_HEAD_DIM: Final = 64
EMULATED_MUTANTS: Final = 2
"""Mutants that are emulated besides; all are run on the value engine."""
FEWEST_MUTANTS: Final = 4


@dataclass(frozen=True, slots=True)
class Subject:
    """What is checked: a kernel text under a contract, and the CuIR that it says, of one instantiation."""

    attention: Attention
    kernel: ChosenKernel
    lifted: Lifted
    target: Kernel
    text: KernelText
    dtype: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Findings:
    cases: tuple[CaseResult, ...]
    mutants: tuple[MutantResult, ...]
    compiled: tuple[Compiled, ...]
    verdict: Verdict
    not_checked: tuple[str, ...]


class Tools(Protocol):
    """How kernel texts are compiled and run. Errors of each: exit code 5 where what it needs is not installed."""

    def compile(self, text: KernelText, dtype: str, head_dim: int) -> Compiled: ...

    def emulator(self, text: KernelText, dtype: str) -> Runner: ...

    def gpu(self, text: KernelText) -> Runner: ...


@dataclass(frozen=True, slots=True)
class Here:
    """In this process, for texts that the rules wrote."""

    def compile(self, text: KernelText, dtype: str, head_dim: int) -> Compiled:
        return compile_text(text, dtype, head_dim)

    def emulator(self, text: KernelText, dtype: str) -> Runner:
        return emulate(text, dtype)

    def gpu(self, text: KernelText) -> Runner:
        return launch(text)


def check_subject(subject: Subject, pool: ThreadPoolExecutor, tools: Tools | None = None) -> Findings:
    """Run all checks. A missing tool (compiler, GPU) lowers the verdict and is listed, it fails nothing. Errors: where all runs are
    right, what `check_long_lengths` raises."""
    tools = tools or Here()
    compiling = pool.submit(tools.compile, subject.text, subject.dtype, subject.shape.D)
    building = pool.submit(tools.emulator, subject.text, subject.dtype)
    checker = Checker(subject.attention, subject.dtype, approximations(subject.target))
    spec = subject.attention.spec
    cases = list(checker.run(ValueRunner(subject.target), value_cases(spec, subject.shape)))
    missing: list[str] = []
    emulator = _available(building, missing)
    if emulator is not None:
        cases += checker.run(emulator, emulator_cases(spec, EMULATED_HEAD_DIM))
    mutants = tuple(_reject_mutants(subject, checker, pool, emulated=emulator is not None))
    compiled = _available(compiling, missing)
    gpu = _available(pool.submit(tools.gpu, subject.text), missing)
    if gpu is not None:
        cases += checker.run(gpu, gpu_cases(spec, subject.shape))
    if len(mutants) < FEWEST_MUTANTS:
        missing.append(f"only {len(mutants)} wrong kernels differ from this one in the problems of the check")
    if all(case.accepted for case in cases):
        check_long_lengths(subject.target, spec)
    verdict = _verdict(emulator is not None, compiled is not None, gpu is not None)
    return Findings(tuple(cases), mutants, () if compiled is None else (compiled,), verdict, tuple(missing))


def _verdict(emulated: bool, compiled: bool, ran: bool) -> Verdict:
    """A level counts where those below it were reached."""
    reached = (Verdict.INTERPRETED, Verdict.EMULATED, Verdict.COMPILED, Verdict.GPU)
    return reached[(emulated, emulated and compiled, emulated and compiled and ran).count(True)]


def _available(future: Future[T], missing: list[str]) -> T | None:
    """The result, or None where it needs a tool that is not here, which is noted."""
    try:
        return future.result()
    except CuError as error:
        if error.exit_code != 5:
            raise
        missing.append(error.diagnostics[0].message)
        return None


def compile_text(text: KernelText, dtype: str, head_dim: int) -> Compiled:
    """Compile for the kernel's architecture. Errors: CU80x; exit code 5 where the compiler is not installed."""
    from cubridge.backend.compile import compile_best

    done = compile_best(text.source, text.contract, DTYPES[dtype], head_dim, include_dirs=text.include_dirs)
    macros = " ".join(f"{name}={value}" for name, value in done.instantiation.macros)
    resources = done.resources
    return Compiled(done.target.name, macros, resources.registers, resources.spills, done.shared_bytes)


def emulate(text: KernelText, dtype: str, head_dim: int = EMULATED_HEAD_DIM) -> LaunchRunner:
    """The text on the emulator, read and built. Errors: CU42x before anything is built; CU83x; exit code 5 where there is no C++
    compiler."""
    launcher = Launcher(EmulatorDevice(check=check_readable), text)
    launcher.prepare(DTYPES[dtype], head_dim)
    return LaunchRunner(launcher, "emulator")


def launch(text: KernelText) -> Runner:
    """The text on the GPU that torch uses. Errors: CU820, exit code 5, where there is none."""
    return LaunchRunner(Launcher(find_gpu(), text), "gpu", runs=2)


def _reject_mutants(
    subject: Subject, checker: Checker, pool: ThreadPoolExecutor, emulated: bool
) -> Iterator[MutantResult]:
    """Wrong specs, adapted as the right one was. Each must be rejected, by every stage that runs it; texts are built while
    others run. A wrong spec that no kernel can be made of shows nothing and is left out."""
    cases = mutant_cases(subject.attention.spec, subject.shape.D)
    wanted = EMULATED_MUTANTS if emulated and subject.shape.D == EMULATED_HEAD_DIM else 0
    texts: list[tuple[str, Problem, Future[Runner]]] = []
    for name, wrong, problem in checker.wrong_specs(cases):
        try:
            target = transfer_unverified(subject.lifted.kernel, wrong)
        except CuError:
            continue
        if len(texts) < wanted:
            texts.append((f"{name}, as text", problem, pool.submit(_text_mutant, subject, target)))
        yield checker.reject(name, problem, ValueRunner(target))
    for name, problem, building in texts:
        yield checker.reject(name, problem, building.result())


def _text_mutant(subject: Subject, target: Kernel) -> Runner:
    patched = lower_kernel(subject.kernel, subject.lifted, target, subject.dtype, subject.shape.D)
    return emulate(subject.kernel.with_text(patched_source(patched)), subject.dtype)
