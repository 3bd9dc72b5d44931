"""The work of a target at its example sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cubridge.engine.values.launch import Launch
from cubridge.engine.values.walks import Walk, walks
from cubridge.ir.tile_shape import query_tile
from cubridge.judge.inputs import make_inputs

if TYPE_CHECKING:
    from cubridge.driver.adapted import Adapted
    from cubridge.driver.reference import TracedReference
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.spec import Shape
    from cubridge.judge.attention import Captures

WORK_TILES: Final = 400
"""Of a schedule, so many are shown."""
_DEVICE: Final = {"SM_COUNT": 132, "L2_BYTES": 1 << 25}


def walked(adapted: Adapted) -> tuple[Walk, ...]:
    """The work tiles in the order of the schedule; none where the kernel does not show its tiles."""
    if query_tile(adapted.target) is None:
        return ()
    return walked_by(adapted.target, adapted.reference, adapted.shape, adapted.dtype)


def walked_by(kernel: Kernel, reference: TracedReference, shape: Shape, dtype: str) -> tuple[Walk, ...]:
    """The work of a kernel that computes `reference` at these sizes. Errors: as `walks` and `example_captures`."""
    return walks(kernel, Launch(shape, example_captures(reference, shape, dtype), _DEVICE))


def example_captures(reference: TracedReference, shape: Shape, dtype: str) -> Captures:
    """What the mask of a reference reads at these sizes. Errors: CU473, CU490."""
    import torch

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    attention = reference.attention
    if not attention.spec.captures:
        return {}
    q, k, v = make_inputs("random", shape, half, 0)
    return attention.captures(shape, attention.extra(shape), {"q": q, "k": k, "v": v})
