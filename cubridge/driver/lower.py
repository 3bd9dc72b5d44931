"""Target CuIR to patched CUDA text, and back again to see that the text says what the CuIR says."""

from __future__ import annotations

from dataclasses import replace

from cubridge.backend.text.diff import render_diff
from cubridge.backend.text.lower import Patched, lower
from cubridge.backend.text.names import Names
from cubridge.driver.kernels import ChosenKernel
from cubridge.driver.lift import is_readable, lift_kernel
from cubridge.frontend.cuda.lift import Lifted
from cubridge.ir.canonical import value_form
from cubridge.ir.diagnostics import CuError, InternalError
from cubridge.ir.nodes import Kernel, Name
from cubridge.ir.source import SourceFile
from cubridge.ir.walk import substitute

PATCHED_NAME = "kernel.cu"


def lower_kernel(
    kernel: ChosenKernel, lifted: Lifted, target: Kernel, dtype: str, head_dim: int, patch_name: str = PATCHED_NAME
) -> Patched:
    """The text of `kernel`, whose CuIR is `lifted`, patched to say `target`. Errors: CU6xx."""
    contract, names = kernel.text.contract, Names.of(kernel.text.contract)
    patched = lower(
        kernel.text.source, lifted.source_map, lifted.kernel, target, names,
        patchable=contract.patchable, patch_name=patch_name,
    )  # fmt: skip
    _check_round_trip(kernel, patched, _with_head_dim_macro(target, names), dtype, head_dim)
    return patched


def patched_source(patched: Patched) -> SourceFile:
    return SourceFile(PATCHED_NAME, patched.text)


def _with_head_dim_macro(target: Kernel, names: Names) -> Kernel:
    """As its text reads: regions say D by the macro that has its value."""
    if names.head_dim is None:
        return target
    macro = Name(names.head_dim)
    return replace(target, regions=tuple(substitute(r, {"D": macro}) for r in target.regions))


def _check_round_trip(kernel: ChosenKernel, patched: Patched, target: Kernel, dtype: str, head_dim: int) -> None:
    """The emitter and the lifter are ours: if they disagree, the fault is too. A text that lifting cannot read at all has none."""
    try:
        again = lift_kernel(kernel, dtype, head_dim, patched_source(patched)).kernel
    except CuError:
        if is_readable(kernel, dtype, head_dim):
            raise
        return
    if value_form(again) != value_form(target):
        raise InternalError("the patched text does not say what its CuIR says:\n" + render_diff(target, again))
