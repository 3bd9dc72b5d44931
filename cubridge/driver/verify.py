"""`cuirc verify` and `cuirc run`: is a kernel well-formed, and does it compute what it should?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cubridge.driver.forms import in_form, lift_form, listed_forms, to_run
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.sandbox.texts import tools_of
from cubridge.driver.verify_backward import Examined, examine_backward, run_beside_packaged
from cubridge.engine.threads import one_thread
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.families import FORWARD, take_forward
from cubridge.ir.spec import Shape
from cubridge.ir.tile_shape import dtype_of, head_dim
from cubridge.judge.attention import Attention, full_attention
from cubridge.judge.checker import Checker, approximations, furthest_off
from cubridge.judge.long_lengths import check_long_lengths, long_fault
from cubridge.judge.places import wrong_place
from cubridge.judge.plan import SMALL, emulator_cases, value_cases
from cubridge.judge.proof.part import unproved
from cubridge.judge.proof.prove import prove
from cubridge.judge.runners import ValueRunner
from cubridge.judge.tools import EMULATED_HEAD_DIM
from cubridge.judge.well_formed import find_faults, verify_statically

if TYPE_CHECKING:
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.driver.reference import TracedReference
    from cubridge.ir.nodes import Kernel
    from cubridge.judge.findings import CaseResult
    from cubridge.judge.problem import Problem


WRONG_VALUES: Final = frozenset({"CU844", "CU317", "CU318"})
"""Codes of kernels that are well-formed and compute something else."""


def examine_ir(kernel: Kernel, attention: Attention | None = None) -> tuple[Diagnostic, ...]:
    """Faults of a kernel in CuIR: static rules, order engine, then the value engine on tiny problems, whose results are
    compared, then single points of long ones. Errors: CU3xx where a run cannot go on."""
    known = attention or full_attention()
    run = run_beside_packaged if kernel.family != FORWARD else _run_ir
    return find_faults(kernel) or run(kernel, known) or refuted(kernel, known)


def _run_ir(kernel: Kernel, known: Attention) -> tuple[Diagnostic, ...]:
    checker = Checker(known, dtype_of(kernel), approximations(kernel))
    cases = value_cases(known.spec, replace(SMALL, D=head_dim(kernel)))
    with one_thread():
        for problem in checker.problems(cases):
            wrong = _difference(kernel, known, problem)
            if wrong is not None:
                return (wrong,)
    fault = long_fault(kernel, known.spec)
    return () if fault is None else (fault,)


def refuted(kernel: Kernel, known: Attention) -> tuple[Diagnostic, ...]:
    """CU318 for each part of a kernel that the solver shows to be another than it should be; none of backward kernels."""
    if kernel.family != FORWARD:
        return ()
    return tuple(
        Diagnostic("CU318", f"{part.name}: {part.counterexample}: {part.because}", kernel.span)
        for part in prove(kernel, known.spec)
        if part.refuted
    )


def not_proved(kernel: Kernel, attention: Attention | None = None) -> tuple[str, ...]:
    """Parts of a kernel without fault that runs alone speak for, each with the reason."""
    if kernel.family != FORWARD:
        return ("not proved for all sizes: a backward kernel, of which runs alone speak",)
    return tuple(map(str, unproved(prove(kernel, (attention or full_attention()).spec))))


def examine_text(path: str, dtype: str | None, head_dim: int | None, attention: Attention | None = None) -> Examined:
    """Faults of a kernel text in each of its forms, of this element type and head dim if they are given: those of its CuIR, then
    those that the emulator shows. A text without a reference is a source kernel and computes full attention.
    Errors: CU4xx where it cannot be lifted."""
    chosen = choose_kernel(path)
    if chosen.text.contract.family != FORWARD:
        return examine_backward(chosen, dtype, head_dim, attention or full_attention())
    forms = [lift_form(chosen, form) for form in listed_forms(chosen, dtype, head_dim)]
    for lifted in forms:
        if found := find_faults(lifted.kernel):
            return Examined(in_form(found, lifted.form))
    known = attention or full_attention()
    unproved: dict[str, None] = {}
    runs = to_run(forms)
    for lifted, _ in runs:
        if found := _run_ir(lifted.kernel, known):
            return Examined(in_form(found, lifted.form))
    for lifted in (lifted for lifted, proving in runs if proving):
        if found := refuted(lifted.kernel, known):
            return Examined(in_form(found, lifted.form))
        unproved |= dict.fromkeys(not_proved(lifted.kernel, known))
    for name, first in {f.form.dtype: f.kernel for f in reversed(forms)}.items():
        if found := _emulated(chosen, name, first, known):
            return Examined(found)
    return Examined((), tuple(f.form for f in forms), tuple(unproved))


def _emulated(chosen: ChosenKernel, dtype: str, kernel: Kernel, known: Attention) -> tuple[Diagnostic, ...]:
    dims = chosen.text.contract.head_dims
    dim = EMULATED_HEAD_DIM if EMULATED_HEAD_DIM in dims else dims[0]
    checker = Checker(known, dtype, approximations(kernel))
    with one_thread():
        results = checker.run(tools_of(chosen).emulator(chosen.text, dtype, dim), emulator_cases(known.spec, dim))
    return tuple(
        Diagnostic(
            "CU844", f"{r.stage}: {_not_computed(known, r.shape, r.inputs)}: {r.detail.splitlines()[0]}", kernel.span
        )
        for r in results
        if not r.accepted
    )[:1]


def run_against(kernel: Kernel, reference: TracedReference, shape: Shape | None) -> tuple[CaseResult, ...]:
    """A kernel in CuIR on the value engine, against a reference. Errors: CU2xx of the static rules, and as
    `check_long_lengths`, where all runs are right."""
    take_forward(kernel.family, kernel.span)
    verify_statically(kernel)
    spec = reference.attention.spec
    sizes = replace(shape or reference.traced.shape, D=head_dim(kernel))
    checker = Checker(reference.attention, dtype_of(kernel), approximations(kernel))
    with one_thread():
        results = checker.run(ValueRunner(kernel), value_cases(spec, sizes)[:1] if shape else value_cases(spec, sizes))
    if all(r.accepted for r in results):
        check_long_lengths(kernel, spec)
    return results


def _difference(kernel: Kernel, known: Attention, problem: Problem) -> Diagnostic | None:
    """What the value engine has against a kernel on one problem, where it begins. Errors: CU3xx where the run cannot go on."""
    runner = ValueRunner(kernel)
    judgement = problem.judge(*runner.run(problem, lse=problem.lse is not None))
    if judgement.accepted:
        return None
    span, note = wrong_place(kernel, known.spec, problem, judgement)
    message = f"{runner.stage}: {_not_computed(known, str(problem.shape), problem.inputs)}: {furthest_off(judgement)}"
    return Diagnostic("CU844", message, span, (note,))


def _not_computed(known: Attention, shape: str, inputs: str) -> str:
    return f"the kernel does not compute {known.name} at {shape} ({inputs})"
