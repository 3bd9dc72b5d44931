"""Everything of a measurement that needs no GPU, in many processes: adaptations, machine code, problems with their oracles.

The result is plain data in files, so that the commands that need the GPU only launch, and adapting is paid for once."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from bench.text_mutants import text_mutants
from bench.variants import VARIANTS
from cubridge.backend.compile.compiler import compile_best
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.tile_plan import list_texts
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adapted import Adapted
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import DEFAULT_SHAPE, Precondition, Shape
from cubridge.ir.types import DType
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.plan import gpu_cases, mutant_cases

if TYPE_CHECKING:
    from cubridge.judge.problem import Problem

Item = TypeVar("Item")
Result = TypeVar("Result")
KERNELS: Final = ("sm80", "sm90a")
DTYPES: Final = {"bf16": DType.BF16, "fp16": DType.F16}
DEFAULT_BUILT: Final = Path("out/bench")
FORMS: Final = (("bf16", 128), ("bf16", 64), ("fp16", 128), ("fp16", 64))
"""Element types and head dims; the first is checked at every length and timed."""
SPARSE: Final = 4
"""The other forms are checked at every fourth problem."""


@dataclass(frozen=True, slots=True)
class Task:
    """`long`: with the constants of the timing, for its shape alone."""

    variant: str
    dtype: str
    head_dim: int
    long: Shape | None = None

    def __str__(self) -> str:
        return f"{self.variant} {self.dtype} D={self.head_dim}" + (f" at {self.long}" if self.long else "")

    @property
    def adaptation(self) -> tuple[str, str, int, bool]:
        """What decides the kernels."""
        return self.variant, self.dtype, self.head_dim, self.long is not None


@dataclass(slots=True)
class Built:
    """What one task gave. `kernels`: by kernel; `mutants`: (kernel, mutation, text). `captures`: at the long shape."""

    task: Task
    preconditions: tuple[Precondition, ...] = ()
    kernels: dict[str, KernelText] = field(default_factory=dict)
    mutants: list[tuple[str, str, KernelText]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    mutant_problems: list[Problem] = field(default_factory=list)
    captures: Mapping[str, object] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    task: Task
    faults: tuple[str, ...]
    seconds: float


def tasks(names: Sequence[str], long_shapes: Sequence[Shape], check: bool) -> list[Task]:
    """Timed tasks first, as they take longest."""
    timed = [Task(name, "bf16", shape.D, shape) for name in names for shape in long_shapes]
    checked = [Task(name, dtype, dim) for dtype, dim in FORMS for name in names] if check else []
    return [*timed, *checked]


def build(wanted: Sequence[Task], arch: str, folder: Path, workers: int | None = None) -> list[Summary]:
    """Run every task, each into a file of `folder`; machine code goes into the compile cache, for `arch`."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        s
        for group in in_processes(partial(_run_and_save, arch=arch, folder=folder), alike(wanted), workers)
        for s in group
    ]


def build_long(wanted: Sequence[tuple[str, Shape]], arch: str, workers: int | None = None) -> list[Built]:
    """What timing needs of variants at shapes, in their order."""
    groups = alike([Task(name, "bf16", shape.D, shape) for name, shape in wanted])
    return [built for group in in_processes(partial(_run_all, arch=arch), groups, workers) for built in group]


def _run_all(wanted: Sequence[Task], arch: str) -> list[Built]:
    return [run_task(task, arch) for task in wanted]


def alike(wanted: Sequence[Task]) -> list[list[Task]]:
    """Tasks that follow each other and need one adaptation."""
    return [list(group) for _, group in groupby(wanted, key=lambda task: task.adaptation)]


def in_processes(job: Callable[[Item], Result], items: Sequence[Item], workers: int | None) -> list[Result]:
    """In the order of `items`; each process has one core."""
    count = min(workers or max(1, (os.cpu_count() or 2) - 1), len(items))
    with ProcessPoolExecutor(count, get_context("spawn"), one_thread) as pool:
        return list(pool.map(job, items))


def _run_and_save(wanted: Sequence[Task], arch: str, folder: Path) -> list[Summary]:
    summaries: list[Summary] = []
    for task in wanted:
        built = run_task(task, arch)
        save(folder, built)
        summaries.append(Summary(task, tuple(built.faults), built.seconds))
    return summaries


def run_task(task: Task, arch: str) -> Built:
    """One variant on both kernels. What fails is recorded, and the rest goes on."""
    started = time.perf_counter()
    built = Built(task)
    for kernel in KERNELS:
        try:
            _adapt(built, kernel, arch)
        except Exception as error:  # one variant that breaks must not cost the run of the others
            built.faults.append(f"{task} {kernel}: {type(error).__name__}: {error}")
    built.seconds = time.perf_counter() - started
    return built


def file_of(folder: Path, task: Task) -> Path:
    return folder / f"{str(task).replace(' ', '-')}.pkl"


def save(folder: Path, built: Built) -> None:
    file_of(folder, built.task).write_bytes(pickle.dumps(built))


def load(folder: Path, wanted: Sequence[Task]) -> Iterator[Built]:
    """What was built, one at a time: their problems together are large."""
    for task in wanted:
        yield pickle.loads(file_of(folder, task).read_bytes())


def one_thread() -> None:
    """Of a worker process: each has one core."""
    import torch

    torch.set_num_threads(1)


@lru_cache(len(KERNELS))
def adapt_example(name: str, kernel: str, dtype: str, head_dim: int, long: bool) -> Adapted:
    """`long`: with the constants of the timing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(VARIANTS[name].source(long))
        return adapt_unchecked(path, kernel, replace(DEFAULT_SHAPE, D=head_dim), dtype)


def captures_at(adapted: Adapted, shape: Shape) -> Mapping[str, object]:
    """What the kernel reads besides q, k, v, of the example's own arguments."""
    attention = adapted.reference.attention
    return attention.captures(shape, attention.extra(shape), {})


def _adapt(built: Built, kernel: str, arch: str) -> None:
    task = built.task
    adapted = adapt_example(task.variant, kernel, task.dtype, task.head_dim, task.long is not None)
    attention = adapted.reference.attention
    built.kernels[kernel] = adapted.text
    built.preconditions = attention.spec.preconditions
    compile_all(adapted.text, task.dtype, task.head_dim, arch)
    if task.long is not None:
        built.captures = captures_at(adapted, task.long)
        return
    checker = Checker(attention, task.dtype, approximations(adapted.target))
    first = (task.dtype, task.head_dim) == FORMS[0]
    if not built.problems:
        cases = gpu_cases(attention.spec, adapted.shape)
        built.problems = checker.problems(cases if first else cases[::SPARSE])
    if first and not built.mutant_problems:
        built.mutant_problems = checker.problems(mutant_cases(attention.spec, adapted.shape))
    if first:
        built.mutants += _mutants(adapted, kernel, task, arch)


def _mutants(adapted: Adapted, kernel: str, task: Task, arch: str) -> list[tuple[str, str, KernelText]]:
    """Wrong texts that compile; the others are rejected already."""
    found: list[tuple[str, str, KernelText]] = []
    for name, source in text_mutants(adapted.text.source):
        text = adapted.kernel.with_text(source)
        try:
            compile_all(text, task.dtype, task.head_dim, arch)
        except CuError:
            continue
        found.append((kernel, name, text))
    return found


def compile_all(text: KernelText, dtype: str, head_dim: int, arch: str) -> None:
    """Into the compile cache: a kernel, and what makes its lists of tiles."""
    kind = DTYPES[dtype]
    compiled = compile_best(text.source, text.contract, kind, head_dim, arch, include_dirs=text.include_dirs)
    for made in list_texts(text, compiled.instantiation).values():
        compile_best(made.source, made.contract, kind, head_dim, arch, include_dirs=made.include_dirs)
