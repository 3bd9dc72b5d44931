"""The backward pass of each variant on a GPU: gradients against fp64 autograd, and wrong passes that must be told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

import torch
from torch import Tensor

from bench.build import adapt_example, compile_all, in_processes
from bench.table import render
from cubridge.backend.launch.backward import BackwardLauncher
from cubridge.backend.launch.device import Device, KernelText
from cubridge.driver.adapted import Adapted
from cubridge.driver.backward import FORWARD, Lowered, lower_backward
from cubridge.driver.device_check import run_on_device
from cubridge.ir.diagnostics import CuError
from cubridge.judge.backward_mutants import backward_mutants
from cubridge.judge.checker import approximations
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from cubridge.judge.gradient_runs import saved
from cubridge.judge.list_mutants import wrong_walks
from cubridge.judge.plan import gradient_cases

Texts = tuple[KernelText, KernelText, KernelText]
FORMS: Final = (("bf16", 128), ("bf16", 64), ("fp16", 128), ("fp16", 64))
"""Element types and head dims; the first is checked at every shape, and of it wrong passes are made."""
SPARSE: Final = 2
"""The other forms are checked at every second shape."""


@dataclass(slots=True)
class Built:
    """One variant. `problems`: each with the output and LSE that a forward pass saves; `mutants`: wrong passes by name."""

    variant: str
    form: str
    texts: Texts | None = None
    problems: list[tuple[GradientProblem, Tensor, Tensor]] = field(default_factory=list)
    mutants: dict[str, Texts] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`worst`: the largest error over its bound. `mutant`: of a wrong pass, which no problem may accept."""

    variant: str
    form: str
    problem: str
    worst: float
    fault: str = ""
    mutant: str = ""


# ---- without a GPU ---------------------------------------------------------------------------------------------------


def build_backward(names: Sequence[str], workers: int | None = None, arch: str = "") -> list[Built]:
    """Every variant in all forms; machine code for `arch` goes into the compile cache."""
    forms = [(name, dtype, dim) for dtype, dim in FORMS for name in names]
    return in_processes(partial(build_one, arch=arch), forms, workers)


def build_one(form: tuple[str, str, int], arch: str = "") -> Built:
    """What fails is recorded, and the rest goes on."""
    name, dtype, dim = form
    built = Built(name, f"{dtype} D={dim}")
    try:
        _adapt(built, dtype, dim)
        if arch:
            for texts in filter(None, (built.texts, *built.mutants.values())):
                compile_texts(texts, dtype, dim, arch)
    except Exception as error:  # one variant that breaks must not cost the run of the others
        built.fault = f"{type(error).__name__}: {error}"
    return built


@lru_cache(1)
def lowered(name: str, dtype: str, dim: int, long: bool) -> tuple[Adapted, Lowered]:
    """The forward kernel of an example, and the kernels of its backward pass."""
    adapted = adapt_example(name, FORWARD, dtype, dim, long)
    return adapted, lower_backward(adapted)


def _adapt(built: Built, dtype: str, dim: int) -> None:
    first = (dtype, dim) == FORMS[0]
    adapted, passes = lowered(built.variant, dtype, dim, long=False)
    attention = adapted.reference.attention
    built.texts = passes.texts
    approximated = approximations(passes.targets.pairs)
    for case in gradient_cases(attention.spec, dim)[:: 1 if first else SPARSE]:
        problem = make_gradient_problem(
            attention, passes.gradient, case.inputs, case.shape, case.seed, dtype, approximated
        )
        built.problems.append((problem, *saved(attention, problem)))
    if first:
        built.mutants = dict(_mutants(passes))


def compile_texts(texts: Iterable[KernelText], dtype: str, dim: int, arch: str) -> None:
    for text in texts:
        compile_all(text, dtype, dim, arch)


def _mutants(passes: Lowered) -> Iterator[tuple[str, Texts]]:
    """Wrong passes that a text can say."""
    walks = ((name, passes.targets._replace(pairs=wrong)) for name, wrong in wrong_walks(passes.targets.pairs))
    for name, wrong in (*backward_mutants(passes.targets, passes.gradient), *walks):
        try:
            yield name, passes.of(wrong).texts
        except CuError:
            continue


# ---- with one --------------------------------------------------------------------------------------------------------


def check_backward(built: Iterable[Built], device: Device) -> Iterator[Outcome]:
    """Each problem of each variant, twice: dk and dv have the same bits. Then wrong passes."""
    for item in built:
        if item.texts is None or item.fault:
            yield Outcome(item.variant, item.form, "", math.inf, item.fault or "not built")
            continue
        for problem, out, lse in item.problems:
            yield _checked(item, BackwardLauncher.of(device, item.texts, say=_quiet), problem, out, lse)
        for name, texts in item.mutants.items():
            yield _rejected(item, name, BackwardLauncher.of(device, texts, say=_quiet))


def _checked(item: Built, launch: BackwardLauncher, problem: GradientProblem, out: Tensor, lse: Tensor) -> Outcome:
    name = f"{problem.inputs} {problem.shape}"
    try:
        first, second = (run_on_device(launch, problem, out, lse) for _ in range(2))
    except CuError as error:
        return Outcome(item.variant, item.form, name, math.inf, str(error))
    judged = problem.judge(first)
    worst = max(j.worst for j in judged.values())
    fault = "; ".join(f"{n} at {j.where} {j.value}, expected {j.expected}" for n, j in judged.items() if not j.accepted)
    if not (torch.equal(first.dk, second.dk) and torch.equal(first.dv, second.dv)):
        fault = "two runs differ"
    return Outcome(item.variant, item.form, name, worst, fault)


def _rejected(item: Built, name: str, launch: BackwardLauncher) -> Outcome:
    """Of a wrong pass: told by some problem, or equal to the right one in all of them."""
    assert item.texts is not None
    right = BackwardLauncher.of(launch.rows.device, item.texts, say=_quiet)
    differs, worst = False, 0.0
    for problem, out, lse in item.problems:
        try:
            wrong = run_on_device(launch, problem, out, lse)
        except CuError:  # told before it gives anything
            return Outcome(item.variant, item.form, "all", math.inf, "", name)
        worst = max(worst, *(j.worst for j in problem.judge(wrong).values()))
        expected = run_on_device(right, problem, out, lse)
        differs |= not all(torch.equal(getattr(wrong, n), getattr(expected, n)) for n in ("dk", "dv"))
        differs |= not torch.allclose(wrong.dq.float(), expected.dq.float(), rtol=1e-2, atol=1e-3)
    fault = "accepted" if differs and worst <= 1.0 else ""
    return Outcome(item.variant, item.form, "all", worst, fault, name)


def _quiet(_: str) -> None:
    """Of what a launcher says."""


# ---- tables ----------------------------------------------------------------------------------------------------------


def check_table(outcomes: Sequence[Outcome]) -> str:
    """One line a variant."""
    rows: list[tuple[object, ...]] = []
    for name in dict.fromkeys(o.variant for o in outcomes):
        right = [o for o in outcomes if o.variant == name and not o.mutant]
        wrong = [o for o in outcomes if o.variant == name and o.mutant]
        told = sum(o.worst > 1.0 for o in wrong)
        rows.append(
            (name, len(right), sum(bool(o.fault) for o in right), max(o.worst for o in right), told, len(wrong))
        )
    return render(("variant", "problems", "failed", "error / bound", "wrong passes told", "of"), rows)
