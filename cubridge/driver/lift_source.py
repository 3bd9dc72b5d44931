"""The CuIR of a source kernel, verified: by the rules, from beside its text, or by a model."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cubridge.driver.kernels import PACKAGED, ChosenKernel, choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.frontend.cuda.lift import Lifted
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile
from cubridge.judge.well_formed import verify_kernel

if TYPE_CHECKING:
    from cubridge.driver.model.stages import ModelStages
    from cubridge.driver.model.use import ModelUse

OUTSIDE: Final = frozenset(f"CU42{n}" for n in range(3, 10))
"""Codes of texts that read as CUDA and are outside the vocabulary of lifting."""


def lift_source(kernel: str, dtype: str, head_dim: int, model: ModelUse | None = None) -> Lifted:
    """The CuIR of a kernel. Errors: as `lift_verified`; with a model for what is outside the rules, as `lift_by_model`."""
    if model is None:
        return lift_verified(choose_kernel(kernel), dtype, head_dim)
    from cubridge.driver.model.stages import stages_of

    with stages_of(model) as stages:
        return lift_chosen(choose_kernel(kernel), dtype, head_dim, stages)


def lift_chosen(kernel: ChosenKernel, dtype: str, head_dim: int, stages: ModelStages | None) -> Lifted:
    """By the rules, from beside the text, or by a model where there is one and the text is outside the vocabulary of the rules."""
    try:
        return lift_verified(kernel, dtype, head_dim)
    except CuError as error:
        if stages is None or not any(d.code in OUTSIDE for d in error.diagnostics):
            raise
        return stages.lift(kernel, dtype, head_dim, error.diagnostics)


def lift_verified(kernel: ChosenKernel, dtype: str, head_dim: int) -> Lifted:
    """As `lift_kernel`; of a text that the rules cannot read, what a model lifted from it before and what lies beside it, judged
    again as far as that needs no run. A packaged kernel is lifted once a process.
    Errors: besides, all that static rules and the order engine find."""
    if kernel.name in PACKAGED:
        return _packaged(kernel.name, kernel.text.source.data, dtype, head_dim)
    try:
        lifted = lift_kernel(kernel, dtype, head_dim)
    except CuError as error:
        recorded = _recorded(kernel, dtype, head_dim)
        if recorded is None:
            raise CuError(*error.diagnostics, exit_code=error.exit_code) from None
        return recorded
    verify_kernel(lifted.kernel)
    return lifted


@lru_cache(maxsize=8)
def _packaged(name: str, text: bytes, dtype: str, head_dim: int) -> Lifted:
    chosen = choose_kernel(name)
    lifted = lift_kernel(chosen, dtype, head_dim, SourceFile(chosen.text.source.name, text))
    verify_kernel(lifted.kernel)
    return lifted


def _recorded(kernel: ChosenKernel, dtype: str, head_dim: int) -> Lifted | None:
    """Errors: CU719; what CuIR that is not anchored in the text is refused for."""
    from cubridge.driver.model.lift_judge import LiftJudge
    from cubridge.driver.model.sidecar import read_sidecar
    from cubridge.driver.sandbox.process import InProcess

    cuir = read_sidecar(kernel, dtype, head_dim)
    return None if cuir is None else LiftJudge(kernel, dtype, head_dim, InProcess()).read(cuir)[0]
