"""FlashAttention-2's forward kernel on the PTX machine, with parameters filled as its own interface fills them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Final

from torch import Tensor

from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch
from cubridge.ir.source import SourceFile
from tests.foreign.attention import HEAD_DIM, Shape
from tests.foreign.compile import compiled, machine
from tests.foreign.launching import results, strides, tensors
from tests.foreign.params import Layout, layout_of
from tests.foreign.sources import CUTLASS, FLASH_ATTENTION_2

POINTERS: Final = ("q_ptr", "k_ptr", "v_ptr", "o_ptr", "softmax_lse_ptr")
ROWS, THREADS, SHARED_BYTES = 128, 128, 2 * 128 * HEAD_DIM * 2 + 128 * HEAD_DIM * 2
"""Of the one form that fa2.cu makes: query rows of a block, its threads, its tiles of Q, K and V."""


def numbers(shape: Shape) -> Mapping[str, float]:
    return strides(shape) | {
        "b": shape.batch, "h": shape.heads, "h_k": shape.key_heads, "h_h_k_ratio": shape.heads // shape.key_heads,
        "seqlen_q": shape.len_q, "seqlen_k": shape.len_kv, "d": HEAD_DIM, "d_rounded": HEAD_DIM,
        "seqlen_q_rounded": -(-shape.len_q // 128) * 128, "seqlen_k_rounded": -(-shape.len_kv // 128) * 128,
        "scale_softmax": shape.scale, "scale_softmax_log2": shape.scale / math.log(2), "p_dropout": 1.0,
        "p_dropout_in_uint8_t": 255, "rp_dropout": 1.0, "scale_softmax_rp_dropout": shape.scale,
        "window_size_left": shape.left, "window_size_right": shape.right, "is_bf16": 1, "is_causal": shape.is_causal,
        "is_seqlens_k_cumulative": 1, "num_splits": 1,
    }  # fmt: skip


_FIELDS: Final = (*POINTERS, *numbers(Shape(1, 1, 1, 1, 1)))


@cache
def text(is_causal: bool, is_local: bool) -> SourceFile:
    fields = "".join(f"F({name})" for name in _FIELDS)
    macros = (f"-DCAUSAL={str(is_causal).lower()}", f"-DLOCAL={str(is_local).lower()}", f"-DFIELDS={fields}")
    folders = (FLASH_ATTENTION_2 / "csrc/flash_attn/src", CUTLASS)
    return compiled("fa2.cu", folders, ("--gpu-architecture=compute_80", *macros))


@cache
def layout(is_causal: bool, is_local: bool) -> Layout:
    return layout_of(machine(text(is_causal, is_local), "layout"), _FIELDS)


def kernel(shape: Shape) -> Machine:
    return machine(text(shape.is_causal, shape.is_local), "flash_fwd_kernel")


def run(shape: Shape, found: Machine | None = None) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp. Errors: CU832 to CU837."""
    given = layout(shape.is_causal, shape.is_local)
    pointers = tuple((given.fields[name].offset, n) for n, name in enumerate(POINTERS))
    grid = Grid((-(-shape.len_q // ROWS), shape.batch, shape.heads), (THREADS, 1, 1), SHARED_BYTES)
    launch = PtxLaunch(grid, given.filled(numbers(shape)), tensors(shape), pointers)
    return results(shape, found or kernel(shape), launch)
