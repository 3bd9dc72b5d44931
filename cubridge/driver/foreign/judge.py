"""Is CuIR what a foreign kernel does: the same events in every block that was followed, and the same values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cubridge.engine.block_events import block_events
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch
from cubridge.frontend.ptx.run import Followed
from cubridge.ir.block_events import difference
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import Shape
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDINGS: Final = {DType.BF16: 2.0**-8, DType.F16: 2.0**-11}
_OUTPUT_ROUNDINGS: Final = 3
"""Of the output, of one weight that an exponential of another last bit rounds elsewhere, and one to spare; of the largest value."""
_LSE_ERROR: Final = 1e-4
"""Of a sum of exponentials in another order, in units of 1 + |lse|."""


def check_events(kernel: Kernel, run: Followed, inputs: Mapping[str, Tensor]) -> None:
    """Errors: CU855 at the line where run and CuIR part."""
    q, k, v = (inputs[name] for name in "qkv")
    launch = Launch(run.shape, grid=run.walk.trace.grid)
    said = block_events(kernel, (q, k, v), launch, [run.walk.trace.block])[run.walk.trace.block]
    found = difference(run.walk.events.intervals, said)
    if found is not None:
        note = Note(f"block {run.walk.trace.block} at {run.shape}")
        raise CuError(
            Diagnostic("CU855", f"the CuIR is not what the kernel does: {found.message}", found.span, (note,))
        )


def check_values(
    kernel: Kernel,
    shape: Shape,
    grid: tuple[int, int, int],
    dtype: DType,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
) -> None:
    """Errors: CU855 where an output of the run is further from the CuIR's than roundings explain; CU3xx."""
    q, k, v = (inputs[name] for name in "qkv")
    out, lse = run_values(kernel, (q, k, v), Launch(shape, grid=grid))
    largest = float(v.abs().max())
    _compare(kernel, shape, "o", outputs["o"], out, _OUTPUT_ROUNDINGS * _ROUNDINGS[dtype] * largest)
    if lse is not None and "lse" in outputs:
        _compare(kernel, shape, "lse", outputs["lse"], lse, _LSE_ERROR)


def _compare(kernel: Kernel, shape: Shape, name: str, had: Tensor, said: Tensor, allowed: float) -> None:
    import torch

    had, said = had.double(), said.double()
    same = (had == said) | (had.isnan() & said.isnan())
    scale = 1 + said.abs() if name == "lse" else torch.ones_like(said)
    off = torch.where(same, 0.0, (had - said).abs() / scale)
    if bool((off.isnan() | (off > allowed)).any()):
        at = tuple(int(x) for x in (off.isnan() | (off > allowed)).nonzero()[0])
        message = f"the kernel gives {float(had[at]):.6g} for `{name}`{list(at)} at {shape}, and its CuIR {float(said[at]):.6g}"
        raise CuError(
            Diagnostic("CU855", f"the CuIR is not what the kernel does: {message}", kernel.region("row_finalize").span)
        )
