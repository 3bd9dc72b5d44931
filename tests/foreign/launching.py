"""What FlashAttention-2 and -3 have in common: tensors [batch, length, heads, head dimension], and how they are given and taken."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cubridge.backend.ptx.machine import Machine, PtxLaunch, Schedule, TensorFlags, TensorMemory
from tests.backend.ptx.foreign import bytes_of
from tests.foreign.attention import HEAD_DIM, Shape


def strides(shape: Shape) -> Mapping[str, int]:
    """The fields of their parameters that say how tensors lie."""
    found: dict[str, int] = {}
    for tensor in "qokv":
        length, heads = (shape.len_q, shape.heads) if tensor in "qo" else (shape.len_kv, shape.key_heads)
        row = heads * HEAD_DIM
        axes = {"head": HEAD_DIM, "row": row, "batch": length * row}
        found |= {f"{tensor}_{axis}_stride": stride for axis, stride in axes.items()}
    return found


def tensors(shape: Shape) -> tuple[TensorMemory, ...]:
    """Inputs, output and log-sum-exp."""
    inputs = zip("qkv", shape.inputs(), strict=True)
    return (
        *(TensorMemory(name, bytes_of(t), TensorFlags.INPUT, 16) for name, t in inputs),
        *(
            TensorMemory(n, b"\xff" * t.nbytes, TensorFlags.OUTPUT, 16)
            for n, t in zip("ol", _outputs(shape), strict=True)
        ),
    )


def results(shape: Shape, machine: Machine, launch: PtxLaunch) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp, equal in every bit under all schedules."""
    made = [machine.run(launch, schedule, 60.0)[:2] for schedule in Schedule]
    assert all(outputs == made[0] for outputs in made)
    out, lse = (
        torch.frombuffer(bytearray(data), dtype=t.dtype).view(t.shape)
        for data, t in zip(made[0], _outputs(shape), strict=True)
    )
    return out, lse


def _outputs(shape: Shape) -> tuple[Tensor, Tensor]:
    out = torch.empty(shape.batch, shape.len_q, shape.heads, HEAD_DIM, dtype=torch.bfloat16)
    return out, torch.empty(shape.batch, shape.heads, shape.len_q)
