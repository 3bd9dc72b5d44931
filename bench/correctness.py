"""Kernels on the GPU against the fp64 oracle: poisoned memory around inputs and in outputs, twice each, bitwise equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bench.build import Built
from bench.table import render
from cubridge.backend.launch.device import Device, KernelText
from cubridge.backend.launch.runtime import LSE, OUTPUT, Launcher
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Precondition

if TYPE_CHECKING:
    from cubridge.judge.problem import Problem

PAD_ROWS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """`worst`, `lse`: the largest error over its bound; accepted at most 1. `reference`: the same of the reference in half
    precision, for comparison."""

    variant: str
    kernel: str
    form: str
    problem: str
    worst: float
    lse: float | None
    reference: float
    fault: str = ""

    @property
    def accepted(self) -> bool:
        return not self.fault and self.worst <= 1.0 and (self.lse is None or self.lse <= 1.0)


@dataclass(frozen=True, slots=True)
class Mutant:
    """`applies`: its result differs from the kernel's on some problem; `worst`: its largest error over the bound there."""

    variant: str
    kernel: str
    name: str
    applies: bool
    rejected: bool
    worst: float


def check(built: Iterable[Built], device: Device) -> list[Outcome]:
    return [
        _one(item, kernel, Launcher(device, text, item.preconditions, say=lambda _: None), problem)
        for item in built
        for kernel, text in item.kernels.items()
        for problem in item.problems
    ]


def check_mutants(built: Iterable[Built], device: Device) -> list[Mutant]:
    found: list[Mutant] = []
    for item in built:
        right = {
            kernel: [_answer(device, text, item.preconditions, p) for p in item.mutant_problems]
            for kernel, text in item.kernels.items()
            if item.mutants
        }
        for kernel, name, text in item.mutants:
            wrong = [_answer(device, text, item.preconditions, p) for p in item.mutant_problems]
            differs = [_differs(a, b) for a, b in zip(wrong, right[kernel], strict=True)]
            judged = [p.judge(*answer) for p, answer in zip(item.mutant_problems, wrong, strict=True)]
            worst = max(max(j.worst, j.lse_error or 0.0) for j in judged)
            found.append(
                Mutant(item.task.variant, kernel, name, any(differs), not all(j.accepted for j in judged), worst)
            )
    return found


def _one(item: Built, kernel: str, launcher: Launcher, problem: Problem) -> Outcome:
    task, name = item.task, f"{problem.inputs} {problem.shape}"
    form = f"{task.dtype} D={task.head_dim}"
    try:
        first, second = (run(launcher, problem) for _ in range(2))
    except CuError as error:
        return Outcome(task.variant, kernel, form, name, float("inf"), None, problem.reference, str(error))
    judgement = problem.judge(*first)
    fault = "two runs differ" if _differs(first, second) else ""
    if not judgement.accepted:
        fault = f"at {judgement.where}: {judgement.value:.6g}, not {judgement.expected:.6g}"
    return Outcome(task.variant, kernel, form, name, judgement.worst, judgement.lse_error, problem.reference, fault)


def run(launcher: Launcher, problem: Problem) -> tuple[Tensor, Tensor | None]:
    """One launch, on inputs with NaN around them, into outputs that hold NaN."""
    device = launcher.device.torch_device
    inputs = {name: poisoned(getattr(problem, name), device) for name in ("q", "k", "v")}
    shape = inputs["q"].shape
    outputs = {OUTPUT: torch.full(shape, torch.nan, dtype=inputs["q"].dtype, device=device)}
    if problem.lse is not None:
        outputs[LSE] = torch.full(shape[:3], torch.nan, device=device)
    launcher.run_into(inputs, problem.captures, outputs)
    lse = outputs[LSE].cpu() if LSE in outputs else None
    return outputs[OUTPUT].cpu(), lse


def poisoned(tensor: Tensor, device: torch.device) -> Tensor:
    """The same values inside a larger tensor of NaN: rows that a kernel must not let in."""
    batch, heads, rows, columns = tensor.shape
    around = torch.full((batch, heads, rows + PAD_ROWS, columns), torch.nan, dtype=tensor.dtype, device=device)
    return around[:, :, :rows].copy_(tensor)


def _answer(
    device: Device, text: KernelText, preconditions: tuple[Precondition, ...], problem: Problem
) -> tuple[Tensor, Tensor | None]:
    return run(Launcher(device, text, preconditions, say=lambda _: None), problem)


def _differs(a: tuple[Tensor, Tensor | None], b: tuple[Tensor, Tensor | None]) -> bool:
    return any(
        not torch.equal(x.nan_to_num(12345.0), y.nan_to_num(12345.0))
        for x, y in zip(a, b, strict=True)
        if x is not None and y is not None
    )


# ---- tables ----------------------------------------------------------------------------------------------------------


def outcome_table(outcomes: Sequence[Outcome]) -> str:
    """One line for each variant and kernel."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.variant, outcome.kernel].append(outcome)
    header = (
        "variant",
        "kernel",
        "problems",
        "failed",
        "error / bound",
        "LSE error / bound",
        "reference's error / bound",
    )
    rows = [
        (
            variant,
            kernel,
            len(group),
            sum(not o.accepted for o in group),
            max(o.worst for o in group),
            max((o.lse for o in group if o.lse is not None), default=None),
            max(o.reference for o in group),
        )
        for (variant, kernel), group in groups.items()
    ]
    return render(header, rows)


def mutant_table(mutants: Sequence[Mutant]) -> str:
    """One line for each variant and kernel: how many apply, how many of them are rejected, and which are not."""
    groups: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        groups[mutant.variant, mutant.kernel].append(mutant)
    rows = [
        (
            variant,
            kernel,
            sum(m.applies for m in group),
            sum(m.rejected for m in group),
            ", ".join(m.name for m in group if m.applies and not m.rejected),
        )
        for (variant, kernel), group in groups.items()
    ]
    return render(("variant", "kernel", "apply", "rejected", "accepted, which fails the check"), rows)


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    return [f"{o.variant} {o.kernel} {o.form} {o.problem}: {o.fault}" for o in outcomes if not o.accepted]


def mutants_hold(mutants: Sequence[Mutant], least: int = 4) -> bool:
    """Every mutant that applies is rejected, and at least `least` apply to each variant on each kernel."""
    applied: dict[tuple[str, str], int] = defaultdict(int)
    for mutant in mutants:
        applied[mutant.variant, mutant.kernel] += mutant.applies
    return bool(mutants) and all(m.rejected for m in mutants if m.applies) and min(applied.values()) >= least
