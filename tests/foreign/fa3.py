"""FlashAttention-3's forward kernel on the PTX machine: its own launch path, run there too, says with which grid and parameters."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Final

from torch import Tensor

from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch, Schedule, TensorFlags, TensorMap, TensorMemory
from cubridge.ir.source import SourceFile
from tests.foreign.attention import HEAD_DIM, Shape
from tests.foreign.compile import compiled, machine
from tests.foreign.launching import results, strides, tensors
from tests.foreign.params import Layout, layout_of
from tests.foreign.sources import FLASH_ATTENTION_3

POINTERS: Final = ("q_ptr", "k_ptr", "v_ptr", "o_ptr", "softmax_lse_ptr", "tile_count_semaphore")
PROCESSORS: Final = 2
_LAUNCHED: Final = struct.Struct("<3I3I2I2I")
_MAP: Final = struct.Struct("<QQ5Q4Q5I3I")
_MAGIC: Final = 0x70616D7261656C63
_ELEMENT_BYTES: Final = {9: 2}
"""By CUtensorMapDataType: bf16."""
_WINDOW: Final = 1 << 36
"""Addresses of a tensor's own: tensor n begins in window n + 1."""


def numbers(shape: Shape) -> Mapping[str, float]:
    return strides(shape) | {
        "v_dim_stride": 1, "b": shape.batch, "b_k": shape.batch, "h": shape.heads, "h_k": shape.key_heads,
        "seqlen_q": shape.len_q, "seqlen_k": shape.len_kv, "d": HEAD_DIM, "dv": HEAD_DIM, "d_rounded": HEAD_DIM,
        "dv_rounded": HEAD_DIM, "total_q": shape.batch * shape.len_q, "total_k": shape.batch * shape.len_kv,
        "scale_softmax": shape.scale, "p_dropout": 1.0, "rp_dropout": 1.0, "window_size_left": shape.left,
        "window_size_right": shape.right, "is_bf16": 1, "is_causal": shape.is_causal, "is_local": shape.is_local,
        "num_splits": 1, "arch": 90, "num_sm": PROCESSORS,
    }  # fmt: skip


_FIELDS: Final = (*POINTERS, *numbers(Shape(1, 1, 1, 1, 1)))


@cache
def text(is_causal: bool, is_local: bool) -> SourceFile:
    fields = "".join(f"F({name})" for name in _FIELDS)
    macros = (
        f"-DCAUSAL={str(is_causal).lower()}",
        f"-DLOCAL={str(is_local).lower()}",
        "-DCLUSTER=1",
        f"-DFIELDS={fields}",
    )
    cutlass = FLASH_ATTENTION_3 / "csrc/cutlass"
    options = ("--gpu-architecture=compute_90a", "-DNDEBUG", "-DCUTLASS_ENABLE_GDC_FOR_SM90", *macros)
    return compiled("fa3.cu", (FLASH_ATTENTION_3 / "hopper", cutlass / "include", cutlass), options, "launch")


@cache
def layout(is_causal: bool, is_local: bool) -> Layout:
    return layout_of(machine(text(is_causal, is_local), "layout"), _FIELDS)


def kernel(shape: Shape) -> Machine:
    return machine(text(shape.is_causal, shape.is_local), "device_kernel")


def launch_of(shape: Shape, memory: tuple[TensorMemory, ...]) -> PtxLaunch:
    """What FlashAttention-3 would launch."""
    given = layout(shape.is_causal, shape.is_local)
    out = TensorMemory("launched", bytes(_LAUNCHED.size + 4096), TensorFlags.OUTPUT | TensorFlags.MAY_BE_UNKNOWN, 16)
    params = given.filled(numbers(shape))
    pointers = [(given.fields[name].offset, n) for n, name in enumerate(POINTERS)]
    host = PtxLaunch(
        Grid((1, 1, 1), (1, 1, 1), 0), params + bytes(8), (*memory, out), (*pointers, (len(params), len(memory)))
    )
    said = machine(text(shape.is_causal, shape.is_local), "host").run(host, Schedule.FORWARD, 10.0)[-1]
    *sizes, cluster, shared_bytes, param_bytes, _ = _LAUNCHED.unpack_from(said)
    made = said[_LAUNCHED.size :][:param_bytes]
    maps = tuple(
        _map(made, at) for at in range(0, param_bytes - _MAP.size, 64) if _MAP.unpack_from(made, at)[0] == _MAGIC
    )
    grid = Grid((sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5]), shared_bytes, cluster)
    return PtxLaunch(grid, made, memory, (), maps)


def _map(params: bytes, at: int) -> TensorMap:
    _, address, *rest = _MAP.unpack_from(params, at)
    extents, strides, box, (rank, kind, swizzle) = rest[:5], rest[5:9], rest[9:14], rest[14:]
    tensor = address // _WINDOW - 1
    swizzle_bytes = (0, 32, 64, 128)[swizzle]
    return TensorMap(
        at,
        tensor,
        _ELEMENT_BYTES[kind],
        swizzle_bytes,
        tuple(extents[:rank]),
        tuple(strides[: rank - 1]),
        tuple(box[:rank]),
    )


def run(shape: Shape) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp. Errors: CU832 to CU837."""
    semaphore = TensorMemory("semaphore", bytes(4), TensorFlags.OUTPUT | TensorFlags.STARTS_AS_IT_IS, 16)
    return results(shape, kernel(shape), launch_of(shape, (*tensors(shape), semaphore)))
