"""The functions that CuIR expressions may call: one table of arity, type, meaning and declared error."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Result(Enum):
    """How the type of a call follows from its arguments."""

    SAME = auto()  # the common type of the arguments
    FLOAT = auto()  # f32, arguments are float
    INT = auto()  # i32
    BOOL = auto()
    SELECT = auto()  # where: bool, then two of one type
    ROW = auto()  # drops the key or output axis
    PARTIAL_ROW = auto()  # drops the axis, lanes not yet added
    ADD_LANES = auto()  # partial -> row
    ANY_LANE = auto()  # a block-uniform truth: some row of a warp


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """`abs_error`, `rel_error`: of the fp32 device implementation (0: correctly rounded to 2 ulp, which the bound's u covers)."""

    arity: int
    result: Result
    cuda: str | None = None  # name of the device function in kernel text; None: has no device form (host or spec only)
    abs_error: float = 0.0
    rel_error: float = 0.0


# Errors of the approximations: CUDA C++ Programming Guide, mathematical functions (intrinsics), and PTX ISA, `tanh.approx`.
FUNCTIONS: Final[dict[str, FunctionInfo]] = {
    "where": FunctionInfo(3, Result.SELECT),
    "maximum": FunctionInfo(2, Result.SAME),
    "minimum": FunctionInfo(2, Result.SAME),
    "abs": FunctionInfo(1, Result.SAME),
    "ceil_div": FunctionInfo(2, Result.INT, "ceil_div"),
    "floor_div": FunctionInfo(2, Result.INT, "floor_div"),
    "floor_mod": FunctionInfo(2, Result.INT, "floor_mod"),
    "f32": FunctionInfo(1, Result.FLOAT),
    "i32": FunctionInfo(1, Result.INT),
    "i64": FunctionInfo(1, Result.INT),
    "exp2": FunctionInfo(1, Result.FLOAT, "exp2_approx", rel_error=2.0**-22),
    "log2": FunctionInfo(1, Result.FLOAT, "log2_approx", abs_error=2.0**-22, rel_error=2.0**-22),
    "rcp": FunctionInfo(1, Result.FLOAT, "rcp_approx", rel_error=2.0**-23),
    "tanh_approx": FunctionInfo(1, Result.FLOAT, "tanh_approx", rel_error=2.0**-11),
    "exp": FunctionInfo(1, Result.FLOAT, "expf"),
    "log": FunctionInfo(1, Result.FLOAT, "logf"),
    "tanh": FunctionInfo(1, Result.FLOAT, "tanhf"),
    "sqrt": FunctionInfo(1, Result.FLOAT, "sqrtf"),
    "rsqrt": FunctionInfo(1, Result.FLOAT, "rsqrtf"),
    "erf": FunctionInfo(1, Result.FLOAT, "erff"),
    "erfc": FunctionInfo(1, Result.FLOAT, "erfcf", rel_error=2.0**-21),
    "sin": FunctionInfo(1, Result.FLOAT, "sinf"),
    "cos": FunctionInfo(1, Result.FLOAT, "cosf"),
    "floor": FunctionInfo(1, Result.FLOAT, "floorf"),
    "ceil": FunctionInfo(1, Result.FLOAT, "ceilf"),
    "round": FunctionInfo(1, Result.FLOAT, "rintf"),
    "log1p": FunctionInfo(1, Result.FLOAT, "log1pf"),
    "log1p_unit": FunctionInfo(1, Result.FLOAT, "log1p_unit", rel_error=2.0**-22),  # of 0 to 1 alone
    "expm1": FunctionInfo(1, Result.FLOAT, "expm1f"),
    "rowmax": FunctionInfo(1, Result.ROW, "row_max"),
    "partial_rowsum": FunctionInfo(1, Result.PARTIAL_ROW, "partial_row_sum"),
    "add_lanes": FunctionInfo(1, Result.ADD_LANES, "add_lanes"),
    "any_lane": FunctionInfo(1, Result.ANY_LANE, "any_lane"),
}
