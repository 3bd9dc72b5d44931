"""A small kernel that is none of ours, with its contract: what the runtime must handle from data alone."""

from __future__ import annotations

from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    CType,
    ElementType,
    HostValue,
    Instantiation,
    LaunchContract,
    MacroChoice,
    MapOfTensor,
    ParamField,
    Role,
    TensorAddress,
    TensorArgument,
    TensorMapSpec,
    TensorStride,
)  # fmt: skip
from cubridge.ir.nodes import Expr
from cubridge.ir.parser import parse_expr
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

TEXT = """\
#include "small/types.cuh"
struct Params { const half_t* q; half_t* o; float* lse; i64 o_row; int rows; float factor; const float* weight; int* counters; };
extern "C" __global__ void small_kernel(const __grid_constant__ Params p) {
    p.o[threadIdx.x] = p.q[threadIdx.x];
}
"""
HEADER = "#pragma once\ntypedef unsigned short half_t;\ntypedef long long i64;\n"
BF16 = Instantiation(DType.BF16, (("WIDTH", 64), ("BLOCK", 32)))


def text(body: str = TEXT) -> SourceFile:
    return SourceFile.from_text("small.cu", body)


def exprs(*texts: str) -> tuple[Expr, ...]:
    return tuple(parse_expr(t) for t in texts)


def small_contract(**changes: object) -> LaunchContract:
    half, f32 = ElementType.HALF, ElementType.F32
    values: dict[str, object] = {
        "entry": "small_kernel",
        "source": "small.cu",
        "include": ".",
        "arch": "sm_80",
        "newer_archs": True,
        "head_dims": (64,),
        "dtypes": ((DType.BF16, ()), (DType.F16, (("HALF_FP16", 1),))),
        "macros": (MacroChoice("WIDTH", exprs("D")), MacroChoice("BLOCK", exprs("32"))),
        "tensors": (
            TensorArgument("q", Role.INPUT, half, exprs("B", "Hq", "Lq", "D")),
            TensorArgument("k", Role.INPUT, half, exprs("B", "Hk", "Lk", "D")),
            TensorArgument("v", Role.INPUT, half, exprs("B", "Hk", "Lk", "D")),
            TensorArgument("o", Role.OUTPUT, half, exprs("B", "Hq", "Lq", "D")),
            TensorArgument("lse", Role.OUTPUT, f32, exprs("B", "Hq", "Lq"), optional=True, contiguous=True),
        ),
        "tensor_maps": (TensorMapSpec("k_map", "k", exprs("64", "BLOCK", "1", "1"), 128),),
        "params": (
            ParamField("k_map", CType.TENSOR_MAP, MapOfTensor("k_map")),
            ParamField("q", CType.HALF_POINTER, TensorAddress("q")),
            ParamField("o", CType.HALF_POINTER, TensorAddress("o")),
            ParamField("lse", CType.FLOAT_POINTER, TensorAddress("lse")),
            ParamField("o_row", CType.I64, TensorStride("o", 2)),
            ParamField("rows", CType.INT, HostValue(parse_expr("B * Hq * Lq"))),
            ParamField("factor", CType.FLOAT, HostValue(parse_expr("D ** -0.5 * cap"))),
            ParamField("weight", CType.FLOAT_POINTER, CapturedAddress("weight", exprs("Hq", "Lk"), 8)),
            ParamField("counters", CType.INT_POINTER, CounterAddress(2)),
        ),
        "block": parse_expr("BLOCK"),
        "grid": parse_expr("minimum(B * Hq, SM_COUNT)"),
        "shared_bytes": parse_expr("WIDTH * BLOCK * 2"),
        "query_tile": parse_expr("BLOCK"),
        "key_tile": parse_expr("BLOCK"),
        "family": "forward",
        "patchable": (),
        "equal_work": False,
    }
    return LaunchContract(**{**values, **changes})  # type: ignore[arg-type]
