"""`cuirc verify` of backward kernels: each by itself, then the three of a pass together, against PyTorch's gradients in fp64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cubridge.backend.launch.backward import BackwardLauncher
from cubridge.backend.ptx.device import PtxDevice
from cubridge.derive.gradient import derive
from cubridge.driver.forms import in_form, lift_form, listed_forms
from cubridge.driver.kernels import BACKWARD, backward_pass, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.engine.dense_gradient import Gradients
from cubridge.engine.threads import one_thread
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.spec import Shape
from cubridge.ir.tile_shape import dtype_of, head_dim
from cubridge.judge.checker import approximations
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from cubridge.judge.gradient_runs import Pass, run_pass, saved
from cubridge.judge.plan import Case
from cubridge.judge.well_formed import find_faults

if TYPE_CHECKING:
    from cubridge.driver.forms import Form
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.ir.nodes import Kernel
    from cubridge.judge.attention import Attention

_CASES: Final = (
    Case("index-coded V", Shape(1, 4, 2, 130, 150, 0), 1),
    Case("large scores", Shape(1, 2, 1, 70, 257, 0), 2),
    Case("random", Shape(2, 1, 1, 1, 65, 0), 3),
)
_NO_PROOF: Final = "not proved for all sizes: a backward pass, of which runs alone speak"
_USUAL: Final = 128
"""The head dim of a kernel that does not show it."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found of a kernel text: faults, or the forms that were looked at and what runs alone speak for in them."""

    faults: tuple[Diagnostic, ...]
    forms: tuple[Form, ...] = ()
    unproved: tuple[str, ...] = ()


def examine_backward(chosen: ChosenKernel, dtype: str | None, dim: int | None, attention: Attention) -> Examined:
    """Faults of the three texts of a pass in each of their forms; then of what they compute together, on the value engine and on
    the emulator. Errors: CU4xx where one cannot be lifted."""
    texts = backward_pass(chosen)
    listed = [[lift_form(text, form) for form in listed_forms(text, dtype, dim)] for text in texts]
    for lifted in (lifted for forms in listed for lifted in forms):
        if found := find_faults(lifted.kernel):
            return Examined(in_form(found, lifted.form))
    for forms in zip(*listed, strict=True):
        kernels = Pass(*(lifted.kernel for lifted in forms))
        form = forms[1].form
        if found := _wrong(kernels, attention, form.dtype, form.head_dim):
            return Examined(in_form(found, form))
    first = listed[1][0].form
    if found := _emulated(texts, Pass(*(forms[0].kernel for forms in listed)), attention, first.dtype, first.head_dim):
        return Examined(found)
    return Examined((), tuple(lifted.form for lifted in listed[1]), (_NO_PROOF,))


def run_beside_packaged(kernel: Kernel, attention: Attention) -> tuple[Diagnostic, ...]:
    """What a kernel in CuIR computes in its place among the packaged ones."""
    dtype, dim = dtype_of(kernel), head_dim(kernel) or _USUAL
    packaged = [lift_kernel(choose_kernel(name), dtype, dim).kernel for name in BACKWARD]
    return _wrong(Pass(*(kernel if k.family == kernel.family else k for k in packaged)), attention, dtype, dim)


def _problems(kernels: Pass, attention: Attention, dtype: str, dim: int) -> Iterator[GradientProblem]:
    gradient, approximated = derive(attention.spec), approximations(kernels.pairs)
    for case in _CASES:
        shape = replace(case.shape, D=dim)
        yield make_gradient_problem(attention, gradient, case.inputs, shape, case.seed, dtype, approximated)


def _wrong(kernels: Pass, attention: Attention, dtype: str, dim: int) -> tuple[Diagnostic, ...]:
    with one_thread():
        for problem in _problems(kernels, attention, dtype, dim):
            if wrong := _difference(kernels, problem, run_pass(kernels, attention, problem), "value engine"):
                return wrong
    return ()


def _emulated(
    texts: tuple[ChosenKernel, ChosenKernel, ChosenKernel], kernels: Pass, attention: Attention, dtype: str, dim: int
) -> tuple[Diagnostic, ...]:
    launch = BackwardLauncher.of(PtxDevice(), (texts[0].text, texts[1].text, texts[2].text), say=lambda _: None)
    with one_thread():
        p = next(_problems(kernels, attention, dtype, dim))
        got = Gradients(*launch(p.q, p.k, p.v, *saved(attention, p), p.dout, p.dlse))
    return _difference(kernels, p, got, "emulator")


def _difference(kernels: Pass, problem: GradientProblem, got: Gradients, where: str) -> tuple[Diagnostic, ...]:
    for name, judgement in problem.judge(got).items():
        if not judgement.accepted:
            place = ", ".join(map(str, judgement.where))
            message = (
                f"{where}: `{name}` is not the gradient at {problem.shape}, {problem.inputs}: at [{place}] it is "
                f"{judgement.value:.6g} and should be {judgement.expected:.6g}, {judgement.worst:.3g} times the bound"
            )
            return (Diagnostic("CU844", message, kernels.pairs.span),)
    return ()
