"""The functions that CuIR expressions may call. One row a function: arity, type, meaning, name on the device, declared error,
derivative."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final


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
    """`number`: the function of Python numbers; None for one of a whole tile, whose meaning is the value engine's.
    `array`: its name in numpy and torch, or a function of one of these libraries and its arrays.
    `cuda`, `cuda_int`: the device function of floats and of 32-bit integers; None: has no such device form.
    `abs_error`, `rel_error`: of the fp32 device function (0: correctly rounded to 2 ulp, which the bound's u covers).
    `derivative`: by each argument, as CuIR over the arguments a, b, c and the result y; () has none. `tie` is what each of two
    equal arguments gets: 0 under a ReLU, 0.5 under a maximum, 1 under a clamp, as PyTorch has it."""

    arity: int
    result: Result
    number: Callable[..., Any] | None = None
    array: Callable[..., Any] | str = ""
    cuda: str | None = None
    cuda_int: str | None = None
    abs_error: float = 0.0
    rel_error: float = 0.0
    derivative: tuple[str, ...] = ()


def _ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def _select(library: Any, condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, bool):
        return a if condition else b
    return library.where(condition, a, b)


def _to_float(library: Any, x: Any) -> Any:
    """What is wider stays so in torch: fp64, which oracles compute in, and 64-bit indices, which become fp64."""
    if library.__name__ == "numpy":
        return x.astype("float32")
    if x.is_floating_point():
        return x
    return x.double() if x.element_size() == 8 else x.float()


def _to_int(library: Any, x: Any) -> Any:
    return x.astype("int64") if library.__name__ == "numpy" else x.int()


def _to_long(library: Any, x: Any) -> Any:
    return x.astype("int64") if library.__name__ == "numpy" else x.long()


def _log1p_of_unit(library: Any, x: Any) -> Any:
    return library.where((x >= 0) & (x <= 1), library.log1p(x), library.nan)


_SELECT, _SAME, _INT, _FLOAT = Result.SELECT, Result.SAME, Result.INT, Result.FLOAT

# Errors of the approximations: CUDA C++ Programming Guide, mathematical functions (intrinsics), and PTX ISA, `tanh.approx`.
FUNCTIONS: Final[dict[str, FunctionInfo]] = {
    "where": FunctionInfo(
        3, _SELECT, lambda c, a, b: a if c else b, _select, derivative=("0", "where(a, 1, 0)", "where(a, 0, 1)")
    ),
    "maximum": FunctionInfo(
        2,
        _SAME,
        max,
        "maximum",
        "fmaxf",
        "imax",
        derivative=("where(y > b, 1, where(a == b, tie, 0))", "where(y > a, 1, where(a == b, tie, 0))"),
    ),
    "minimum": FunctionInfo(
        2,
        _SAME,
        min,
        "minimum",
        "fminf",
        "imin",
        derivative=("where(y < b, 1, where(a == b, tie, 0))", "where(y < a, 1, where(a == b, tie, 0))"),
    ),
    "abs": FunctionInfo(1, _SAME, abs, "abs", "fabsf", "iabs", derivative=("where(a > 0, 1, where(a < 0, -1, 0))",)),
    "ceil_div": FunctionInfo(2, _INT, _ceil_div, lambda _, a, b: _ceil_div(a, b), cuda_int="ceil_div"),
    "floor_div": FunctionInfo(2, _INT, operator.floordiv, lambda _, a, b: a // b, cuda_int="floor_div"),
    "floor_mod": FunctionInfo(2, _INT, operator.mod, lambda _, a, b: a % b, cuda_int="floor_mod"),
    "f32": FunctionInfo(1, _FLOAT, float, _to_float, derivative=("1",)),
    "i32": FunctionInfo(1, _INT, int, _to_int, derivative=("0",)),
    "i64": FunctionInfo(1, _INT, int, _to_long, derivative=("0",)),
    "exp2": FunctionInfo(
        1, _FLOAT, lambda x: 2.0**x, "exp2", "exp2_approx", rel_error=2.0**-22, derivative=("LN2 * y",)
    ),
    "log2": FunctionInfo(
        1, _FLOAT, math.log2, "log2", "log2_approx", abs_error=2.0**-22, rel_error=2.0**-22, derivative=("LOG2E / a",)
    ),
    "rcp": FunctionInfo(
        1, _FLOAT, lambda x: 1.0 / x, "reciprocal", "rcp_approx", rel_error=2.0**-23, derivative=("-(y**2)",)
    ),
    "tanh_approx": FunctionInfo(
        1, _FLOAT, math.tanh, "tanh", "tanh_approx", rel_error=2.0**-11, derivative=("1 - y**2",)
    ),
    "exp": FunctionInfo(1, _FLOAT, math.exp, "exp", "expf", derivative=("y",)),
    "log": FunctionInfo(1, _FLOAT, math.log, "log", "logf", derivative=("1 / a",)),
    "tanh": FunctionInfo(1, _FLOAT, math.tanh, "tanh", "tanhf", derivative=("1 - y**2",)),
    "sqrt": FunctionInfo(1, _FLOAT, math.sqrt, "sqrt", "sqrtf", derivative=("0.5 / y",)),
    "rsqrt": FunctionInfo(1, _FLOAT, lambda x: 1.0 / math.sqrt(x), "rsqrt", "rsqrtf", derivative=("-0.5 * (y / a)",)),
    "erf": FunctionInfo(1, _FLOAT, math.erf, "erf", "erff", derivative=("1.1283791670955126 * exp(-(a**2))",)),
    "erfc": FunctionInfo(
        1, _FLOAT, math.erfc, "erfc", "erfcf", rel_error=2.0**-21, derivative=("-1.1283791670955126 * exp(-(a**2))",)
    ),
    "sin": FunctionInfo(1, _FLOAT, math.sin, "sin", "sinf", derivative=("cos(a)",)),
    "cos": FunctionInfo(1, _FLOAT, math.cos, "cos", "cosf", derivative=("-sin(a)",)),
    "floor": FunctionInfo(1, _FLOAT, math.floor, "floor", "floorf", derivative=("0",)),
    "ceil": FunctionInfo(1, _FLOAT, math.ceil, "ceil", "ceilf", derivative=("0",)),
    "round": FunctionInfo(1, _FLOAT, round, "round", "rintf", derivative=("0",)),
    "log1p": FunctionInfo(1, _FLOAT, math.log1p, "log1p", "log1pf", derivative=("1 / (1 + a)",)),
    "log1p_unit": FunctionInfo(  # of 0 to 1 alone
        1,
        _FLOAT,
        lambda x: math.log1p(x) if 0 <= x <= 1 else math.nan,
        _log1p_of_unit,
        "log1p_unit",
        rel_error=2.0**-22,
        derivative=("1 / (1 + a)",),
    ),
    "expm1": FunctionInfo(1, _FLOAT, math.expm1, "expm1", "expm1f", derivative=("1 + y",)),
    "rowmax": FunctionInfo(1, Result.ROW, cuda="row_max"),
    "partial_rowsum": FunctionInfo(1, Result.PARTIAL_ROW, cuda="partial_row_sum"),
    "add_lanes": FunctionInfo(1, Result.ADD_LANES, cuda="add_lanes"),
    "any_lane": FunctionInfo(1, Result.ANY_LANE, cuda="any_lane"),
}
