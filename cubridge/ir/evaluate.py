"""Evaluate an expression over Python numbers or torch tensors. Reductions over a tile are the value engine's, not ours."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeGuard, assert_never

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import (
    Attr,
    Binary,
    BoolLit,
    Call,
    Expr,
    FloatLit,
    Index,
    IntLit,
    Name,
    Record,
    Unary,
)  # fmt: skip

if TYPE_CHECKING:
    from torch import Tensor

    Value = bool | int | float | Tensor
    Lookup = Callable[[Expr], Value]

CONSTANTS: Final[dict[str, float]] = {
    "inf": math.inf,
    "nan": math.nan,
    "LOG2E": math.log2(math.e),
    "LN2": math.log(2.0),
    "pi": math.pi,
}

BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": lambda a, b: _power(a, b), "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

SCALAR_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "where": lambda c, a, b: a if c else b,
    "maximum": max, "minimum": min, "abs": abs,
    "ceil_div": lambda a, b: -(-a // b), "floor_div": operator.floordiv, "floor_mod": operator.mod,
    "f32": float, "i32": int, "i64": int,
    "exp2": lambda x: 2.0**x, "log2": math.log2, "rcp": lambda x: 1.0 / x, "tanh_approx": math.tanh,
    "exp": math.exp, "log": math.log, "tanh": math.tanh, "sqrt": math.sqrt, "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "erf": math.erf, "erfc": math.erfc, "sin": math.sin, "cos": math.cos, "floor": math.floor, "ceil": math.ceil,
    "round": round, "log1p": math.log1p, "log1p_unit": lambda x: math.log1p(x) if 0 <= x <= 1 else math.nan,
    "expm1": math.expm1,
}  # fmt: skip


def evaluate(expr: Expr, lookup: Lookup) -> Value:
    """The value of `expr`; `lookup` gives Names, Attrs and the bases of Index nodes (tensors, indexed elementwise).
    Errors: CU301 for a call that has no elementwise meaning, or arithmetic that has no value."""
    match expr:
        case BoolLit(value) | IntLit(value) | FloatLit(value):
            return value
        case Name(name):
            return CONSTANTS[name] if name in CONSTANTS else lookup(expr)
        case Attr():
            return lookup(expr)
        case Index(base, indices):
            return _index(lookup(base), [evaluate(x, lookup) for x in indices])
        case Unary(op, operand):
            return _guard(expr, lambda value: _unary(op, value), evaluate(operand, lookup))
        case Binary(op, left, right):
            return _guard(expr, BINARY[op], evaluate(left, lookup), evaluate(right, lookup))
        case Call(fn, args):
            return _call(expr, fn, [evaluate(a, lookup) for a in args])
        case Record():
            raise CuError(Diagnostic("CU301", f"`{expr.name}` is not a single value", expr.span))
        case _:
            assert_never(expr)  # pyright: ignore[reportArgumentType]


def evaluate_number(expr: Expr, values: Mapping[str, Value]) -> Value:
    """Evaluate over plain names, such as the sizes of a launch. Errors: CU301 for an unknown name."""
    return evaluate(expr, by_name(values))


def by_name(values: Mapping[str, Value]) -> Lookup:
    """Gives names their values. Errors of a look-up: CU301 for an unknown name."""

    def lookup(node: Expr) -> Value:
        if isinstance(node, Name) and node.id in values:
            return values[node.id]
        raise CuError(Diagnostic("CU301", "this name has no value here", node.span))

    return lookup


def is_tensor(value: object) -> TypeGuard[Tensor]:
    return hasattr(value, "dtype")


def _unary(op: str, value: Any) -> Value:
    if op == "-":
        return -value
    return (not value) if isinstance(value, bool) else ~value


def _index(base: Any, indices: list[Value]) -> Value:
    if not any(is_tensor(x) for x in indices):
        return base[tuple(indices)]
    import torch

    parts = torch.broadcast_tensors(*(torch.as_tensor(x) for x in indices))
    return base[tuple(p.long() for p in parts)]


def _power(a: Value, b: Value) -> Value:
    """`a ** b`, but no integer that needs more than 128 bits and no complex number."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and a.bit_length() * b > 128:
        raise OverflowError("an integer beyond 64 bits")
    value = a**b
    if isinstance(value, complex):
        raise ValueError("a root of a negative number")
    return value


def _guard(expr: Expr, fn: Callable[..., Value], *args: Value) -> Value:
    try:
        return fn(*args)
    except (ZeroDivisionError, ValueError, OverflowError, TypeError, RuntimeError) as error:  # the last is torch's
        raise CuError(Diagnostic("CU301", f"this expression has no value: {error}", expr.span)) from error


def _call(expr: Expr, fn: str, args: list[Value]) -> Value:
    if any(is_tensor(a) for a in args):
        return tensor_call(expr, fn, args)
    if fn not in SCALAR_CALLS:
        raise CuError(Diagnostic("CU301", f"`{fn}` has no elementwise meaning", expr.span))
    return _guard(expr, SCALAR_CALLS[fn], *args)


@cache
def _tensor_calls() -> dict[str, Callable[..., Tensor]]:
    import torch

    return {
        "where": torch.where, "maximum": torch.maximum, "minimum": torch.minimum, "abs": torch.abs,
        "ceil_div": lambda a, b: -(-a // b), "floor_div": operator.floordiv, "floor_mod": operator.mod,
        "f32": _to_float, "i32": lambda x: x.int(), "i64": lambda x: x.long(),
        "exp2": torch.exp2, "log2": torch.log2, "rcp": torch.reciprocal, "tanh_approx": torch.tanh,
        "exp": torch.exp, "log": torch.log, "tanh": torch.tanh, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
        "erf": torch.erf, "erfc": torch.erfc, "sin": torch.sin, "cos": torch.cos, "floor": torch.floor,
        "ceil": torch.ceil, "round": torch.round, "log1p": torch.log1p, "expm1": torch.expm1,
        "log1p_unit": lambda x: torch.where((x >= 0) & (x <= 1), torch.log1p(x), torch.nan),
    }  # fmt: skip


def tensor_call(expr: Expr, fn: str, args: list[Value]) -> Value:
    """The function `fn` of arguments among which are tensors. Errors: CU301 for one that has no elementwise meaning, or
    no value of these."""
    import torch

    table = _tensor_calls()
    if fn not in table:
        raise CuError(Diagnostic("CU301", f"`{fn}` has no elementwise meaning", expr.span))
    like = next(a for a in args if is_tensor(a) and a.dtype != torch.bool) if fn in ("maximum", "minimum") else None
    if like is not None:
        args = [a if is_tensor(a) else torch.as_tensor(a, dtype=like.dtype) for a in args]
    return _guard(expr, table[fn], *args)


def _to_float(x: Tensor) -> Tensor:
    """`f32` of a tensor; what is wider stays so: fp64, which oracles compute in, and 64-bit indices, which become fp64."""
    if x.is_floating_point():
        return x
    return x.double() if x.element_size() == 8 else x.float()
