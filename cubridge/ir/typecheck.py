"""Types of expressions: element type, axes, and whether a row sum is still partial. Region code and host expressions alike.

Rules of region code: integers and floats do not mix, except that an integer literal may stand for a float; a partial row sum may
only be added to partial sums, scaled, selected and negated until `add_lanes`, since what is added to it counts once per lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn, assert_never

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import divides_by_zero
from cubridge.ir.functions import FUNCTIONS, Result
from cubridge.ir.nodes import (
    COMPARISONS,
    NAMED_CONSTANTS,
    SIZES,
    Attr,
    Binary,
    BoolLit,
    Call,
    Captured,
    Expr,
    FloatLit,
    Index,
    IntLit,
    Name,
    Record,
    TileList,
    Unary,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.types import Axis, DType, ValueType

BOOL: Final = ValueType(DType.BOOL)
INT: Final = ValueType(DType.I32)
FLOAT: Final = ValueType(DType.F32)

_LOGIC: Final = frozenset({"&", "|", "^"})
_INT_ONLY: Final = frozenset({"//", "%"})
_CONVERSIONS: Final = {"f32": DType.F32, "i32": DType.I32, "i64": DType.I64}
_REDUCED: Final = frozenset({Axis.KEY, Axis.OUT})


@dataclass(frozen=True, slots=True)
class Scope:
    """What names stand for. `fields`: by scope prefix, then name. `host`: Python's numbers, where integers become floats freely."""

    names: Mapping[str, ValueType]
    fields: Mapping[str, Mapping[str, ValueType]] = field(default_factory=dict)
    captured: Mapping[str, Captured | TileList] = field(default_factory=dict)
    host: bool = False
    other_call: Callable[[Call], ValueType] | None = None
    """Types calls that are not in the table of functions."""
    broken: frozenset[str] = frozenset()
    """Names whose own definition is at fault: what reads them is not reported again."""

    def bind(self, name: str, type: ValueType) -> Scope:
        return replace(self, names={**self.names, name: type}, broken=self.broken - {name})

    def spoil(self, name: str) -> Scope:
        return replace(self, broken=self.broken | {name})


BASE_NAMES: Final[Mapping[str, ValueType]] = {
    **dict.fromkeys(SIZES, INT),
    **dict.fromkeys(NAMED_CONSTANTS, FLOAT),
}
"""Names known everywhere."""


def infer(expr: Expr, scope: Scope) -> ValueType:
    """The type of `expr`. Errors: CU201 to CU204 and CU206, the first one found."""
    match expr:
        case BoolLit():
            return BOOL
        case IntLit():
            return INT
        case FloatLit():
            return FLOAT
        case Name(name):
            return _name(expr, name, scope)
        case Attr(base, name):
            return _attribute(expr, base, name, scope)
        case Index(base, indices):
            return _element(expr, base, indices, scope)
        case Unary(op, operand):
            return _unary(expr, op, infer(operand, scope))
        case Binary():
            return _binary(expr, infer(expr.left, scope), infer(expr.right, scope), scope)
        case Call(fn, args):
            return _call(expr, fn, args, scope)
        case Record():
            return fail("CU202", f"`{expr.name}` is not a single value", expr)
        case _:
            assert_never(expr)  # pyright: ignore[reportArgumentType]


def fail(code: str, message: str, expr: Expr, help: str | None = None) -> NoReturn:
    raise CuError(Diagnostic(code, message, expr.span, help=help))


def is_zero(expr: Expr) -> bool:
    return isinstance(expr, IntLit | FloatLit) and expr.value == 0


# ---- names -----------------------------------------------------------------------------------------------------------


def _name(expr: Expr, name: str, scope: Scope) -> ValueType:
    if name not in scope.names:
        fail("CU201", f"`{name}` is not known here", expr)
    return scope.names[name]


def _attribute(expr: Expr, base: Expr, name: str, scope: Scope) -> ValueType:
    prefix = base.id if isinstance(base, Name) else print_expr(base)
    if prefix not in scope.fields:
        fail("CU201", f"`{prefix}` has no fields here", expr)
    if name in scope.fields[prefix]:
        return scope.fields[prefix][name]
    if prefix == "p" and name in scope.captured:
        fail("CU206", f"`p.{name}` is a tensor: index it", expr)
    return fail("CU201", f"`{prefix}` has no field `{name}`", expr)


def _element(expr: Expr, base: Expr, indices: tuple[Expr, ...], scope: Scope) -> ValueType:
    if not isinstance(base, Attr) or base.base != Name("p") or base.name not in scope.captured:
        fail("CU201", f"`{print_expr(base)}` is no captured tensor", base)
    tensor = scope.captured[base.name]
    if len(indices) != len(tensor.extents):
        message = f"`p.{base.name}` has {len(tensor.extents)} axes, and {len(indices)} indices are given"
        fail("CU206", message, expr)
    axes: frozenset[Axis] = frozenset()
    for index in indices:
        kind = infer(index, scope)
        if not kind.dtype.is_int or kind.partial:
            fail("CU202", f"an index must be an integer, this is {kind}", index)
        axes |= kind.axes
    return ValueType(tensor.dtype, axes)


# ---- operators -------------------------------------------------------------------------------------------------------


def _unary(expr: Expr, op: str, operand: ValueType) -> ValueType:
    if (operand.dtype is DType.BOOL) == (op == "-"):
        fail("CU202", f"`{op}` does not apply to {operand}", expr, "write `x != 0`" if op == "~" else None)
    return operand


def _no_zero_divisor(expr: Expr) -> None:
    if divides_by_zero(expr):
        fail("CU207", "this divides by 0", expr)


def _binary(expr: Binary, left: ValueType, right: ValueType, scope: Scope) -> ValueType:
    axes = left.axes | right.axes
    _no_zero_divisor(expr)
    if expr.op in _LOGIC:
        if left.dtype is not right.dtype or left.dtype.is_float or left.partial or right.partial:
            fail("CU202", f"`{expr.op}` does not apply to {left} and {right}", expr)
        return ValueType(left.dtype, axes)
    if DType.BOOL in (left.dtype, right.dtype) and not (expr.op in ("==", "!=") and left.dtype is right.dtype):
        fail("CU202", f"`{expr.op}` does not apply to {left} and {right}", expr)
    dtype = _common(expr, expr.left, left, expr.right, right, scope)
    if expr.op in COMPARISONS:
        _no_partial(expr, left, right)
        return ValueType(DType.BOOL, axes)
    if expr.op in _INT_ONLY and not dtype.is_int:
        fail("CU202", f"`{expr.op}` takes integers, not {left} and {right}", expr)
    if expr.op == "/" and not dtype.is_float and not scope.host:
        fail("CU202", "`/` takes floats; `//` divides integers", expr)
    if expr.op == "**":
        if not scope.host:
            fail("CU202", "`**` has no device form", expr, "multiply, or use `exp2` and `log2`")
        return ValueType(dtype if isinstance(expr.right, IntLit) and expr.right.value >= 0 else DType.F32, axes)
    return ValueType(DType.F32 if expr.op == "/" else dtype, axes, _partial(expr, left, right))


def _common(at: Expr, a: Expr, left: ValueType, b: Expr, right: ValueType, scope: Scope) -> DType:
    """The element type of two operands together."""
    if left.dtype is right.dtype:
        return left.dtype
    if left.dtype.is_int and right.dtype.is_int:
        return DType.I64
    if left.dtype.is_float and (scope.host or isinstance(b, IntLit)) and right.dtype.is_int:
        return left.dtype
    if right.dtype.is_float and (scope.host or isinstance(a, IntLit)) and left.dtype.is_int:
        return right.dtype
    return fail("CU202", f"{left} and {right} do not mix", at, "convert one of them with `f32(..)` or `i32(..)`")


def _partial(expr: Binary, left: ValueType, right: ValueType) -> bool:
    """Is the result of arithmetic a partial sum, if the operator is linear in it."""
    if not left.partial and not right.partial:
        return False
    match expr.op:
        case "+" | "-":
            fine = (left.partial or is_zero(expr.left)) and (right.partial or is_zero(expr.right))
        case "*":
            fine = not (left.partial and right.partial)
        case _:
            fine = expr.op == "/" and not right.partial
    if not fine:
        help = "add the lanes first, with `add_lanes`; what is added to a partial sum counts once per lane"
        fail("CU204", f"`{expr.op}` is not linear in a partial sum", expr, help)
    return True


def _no_partial(expr: Expr, *kinds: ValueType) -> None:
    if any(kind.partial for kind in kinds):
        fail("CU204", "a partial sum is used before its lanes are added", expr, "use `add_lanes(..)` of it")


# ---- calls -----------------------------------------------------------------------------------------------------------


def _call(expr: Call, fn: str, args: tuple[Expr, ...], scope: Scope) -> ValueType:
    if fn not in FUNCTIONS and scope.other_call is not None:
        return scope.other_call(expr)
    if fn not in FUNCTIONS:
        fail("CU201", f"`{fn}` cannot be called here", expr)
    info = FUNCTIONS[fn]
    if len(args) != info.arity:
        fail("CU206", f"`{fn}` takes {info.arity} arguments, not {len(args)}", expr)
    kinds = tuple(infer(a, scope) for a in args)
    _no_zero_divisor(expr)
    axes = frozenset[Axis]().union(*(k.axes for k in kinds))
    match info.result:
        case Result.ADD_LANES:
            if not kinds[0].partial:
                fail("CU204", "`add_lanes` takes a partial sum, and this is none", args[0])
            return replace(kinds[0], partial=False)
        case Result.SELECT:
            return _select(expr, args, kinds, scope)
        case Result.SAME:
            _no_partial(expr, *kinds)
            if any(k.dtype is DType.BOOL for k in kinds):
                fail("CU202", f"`{fn}` does not apply to bool", expr)
            dtype = kinds[0].dtype if len(args) == 1 else _common(expr, args[0], kinds[0], args[1], kinds[1], scope)
            return ValueType(dtype, axes)
        case Result.FLOAT | Result.INT | Result.BOOL:
            return ValueType(_result_dtype(expr, fn, args, kinds, scope), axes)
        case Result.ROW | Result.PARTIAL_ROW:
            return _reduce(args[0], fn, kinds[0], info.result is Result.PARTIAL_ROW)
        case Result.ANY_LANE:
            if kinds[0] != ValueType(DType.BOOL, frozenset({Axis.ROW})):
                fail("CU202", f"`any_lane` takes a condition per row, not {kinds[0]}", args[0])
            return BOOL
        case _:
            assert_never(info.result)


def _result_dtype(expr: Call, fn: str, args: tuple[Expr, ...], kinds: tuple[ValueType, ...], scope: Scope) -> DType:
    _no_partial(expr, *kinds)
    if fn in _CONVERSIONS:
        return _CONVERSIONS[fn]
    result = FUNCTIONS[fn].result
    for arg, kind in zip(args, kinds, strict=True):
        as_float = kind.dtype.is_float or (kind.dtype.is_int and (scope.host or isinstance(arg, IntLit)))
        if not (as_float if result is Result.FLOAT else kind.dtype.is_int):
            fail("CU202", f"`{fn}` takes {'floats' if result is Result.FLOAT else 'integers'}, not {kind}", arg)
    if result is Result.FLOAT:
        return DType.F32
    return DType.I64 if any(k.dtype is DType.I64 for k in kinds) else DType.I32


def _select(expr: Call, args: tuple[Expr, ...], kinds: tuple[ValueType, ...], scope: Scope) -> ValueType:
    condition, a, b = kinds
    if condition.dtype is not DType.BOOL:
        fail("CU202", f"the condition of `where` must be bool, not {condition}", args[0])
    if DType.BOOL in (a.dtype, b.dtype) and a.dtype is not b.dtype:
        fail("CU202", f"{a} and {b} do not mix", expr)
    partial = a.partial or b.partial
    if partial and not ((a.partial or is_zero(args[1])) and (b.partial or is_zero(args[2]))):
        fail("CU204", "`where` mixes a partial sum with a whole one", expr, "use `add_lanes(..)` first")
    return ValueType(_common(expr, args[1], a, args[2], b, scope), condition.axes | a.axes | b.axes, partial)


def _reduce(arg: Expr, fn: str, kind: ValueType, partial: bool) -> ValueType:
    if not kind.dtype.is_float or not kind.axes & _REDUCED or kind.partial:
        fail("CU203", f"`{fn}` reduces the columns of a float tile, and this is {kind}", arg)
    return ValueType(kind.dtype, kind.axes - _REDUCED, partial)
