"""Element type and axes of region expressions, and which integers are never negative: what the choice of C text rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, assert_never

from cubridge.ir.diagnostics import Diagnostic, Refused
from cubridge.ir.functions import FUNCTIONS, Result
from cubridge.ir.nodes import (
    NAMED_CONSTANTS,
    SIZES,
    Attr,
    Binary,
    BoolLit,
    Call,
    Captured,
    Expr,
    Field,
    FieldType,
    FloatLit,
    Index,
    IntLit,
    Kernel,
    Name,
    Node,
    Partial,
    Record,
    Row,
    Scalar,
    Unary,
)  # fmt: skip
from cubridge.ir.types import Axis, DType, ValueType

COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")
I32: Final = ValueType(DType.I32)
F32: Final = ValueType(DType.F32)
BOOL: Final = ValueType(DType.BOOL)

ACCESSORS: Final = {
    "i": ValueType(DType.I32, frozenset({Axis.ROW})),
    "j": ValueType(DType.I32, frozenset({Axis.KEY})),
    "e": ValueType(DType.I32, frozenset({Axis.OUT})),
}
TILES: Final = {
    "s": ValueType(DType.F32, frozenset({Axis.ROW, Axis.KEY})),
    "o": ValueType(DType.F32, frozenset({Axis.ROW, Axis.OUT})),
    "lse": ValueType(DType.F32, frozenset({Axis.ROW})),
}
TILE_FIELDS: Final = ("b", "h", "hk", "q_start")
"""What every query tile has: never negative."""


def unsayable(what: str, node: Node, help: str | None = None) -> Refused:
    """The error of a CuIR node that CUDA region text cannot say."""
    return Refused(Diagnostic("CU603", what, node.span, help=help))


@dataclass
class Types:
    """Types inside one function of `kernel`; `declare` adds its locals as they are assigned."""

    kernel: Kernel
    locals: dict[str, ValueType] = field(default_factory=dict)
    _nonnegative: set[str] = field(default_factory=set)

    def declare(self, name: str, value: Expr) -> None:
        """The local `name` now holds `value`. Two assignments give it the axes of both."""
        new = self.of(value)
        old = self.locals.get(name, new)
        self.locals[name] = ValueType(new.dtype, old.axes | new.axes, new.partial)
        is_known = name in self._nonnegative or old is new
        self._nonnegative -= {name}
        if is_known and self.nonnegative(value):
            self._nonnegative |= {name}

    # ---- types -------------------------------------------------------------------------------------------------------

    def of(self, expr: Expr) -> ValueType:
        """Errors: CU603 for what region code cannot contain."""
        match expr:
            case BoolLit():
                return BOOL
            case IntLit():
                return I32
            case FloatLit():
                return F32
            case Name(name):
                return self._name(expr, name)
            case Attr(Name(scope), name):
                return self._attr(expr, scope, name)
            case Index(Attr(Name("p"), name), indices):
                return ValueType(self.captured(name).dtype, _axes(self.of(x) for x in indices))
            case Unary(_, operand):
                return self.of(operand)
            case Binary(op, left, right):
                return _binary(op, self.of(left), self.of(right))
            case Call(fn, args):
                return self._call(expr, fn, [self.of(a) for a in args])
            case Attr() | Index() | Record():
                raise unsayable("region code cannot say this", expr)
            case _:
                assert_never(expr)  # pyright: ignore[reportArgumentType]

    def _name(self, expr: Expr, name: str) -> ValueType:
        for table in (self.locals, ACCESSORS, TILES):
            if name in table:
                return table[name]
        if name in SIZES or name in ("kv_start", "t"):
            return I32
        if name in NAMED_CONSTANTS:
            return F32
        for constant in self.kernel.constants:
            if constant.name == name:
                return F32 if isinstance(constant.value, float) else I32
        raise unsayable(f"`{name}` has no meaning in a region", expr)

    def _attr(self, expr: Expr, scope: str, name: str) -> ValueType:
        match scope:
            case "keys":
                return I32
            case "tile" if name in TILE_FIELDS:
                return I32
            case "tile":
                fields = self.kernel.tile_state
            case "row":
                fields = self.kernel.row_state
            case "p":
                fields = self.kernel.params
            case _:
                raise unsayable(f"`{scope}.{name}` has no meaning in a region", expr)
        match self._field(expr, fields, name):
            case Scalar(dtype):
                return ValueType(dtype)
            case Row(dtype):
                return ValueType(dtype, frozenset({Axis.ROW}))
            case Partial(dtype):
                return ValueType(dtype, frozenset({Axis.ROW}), partial=True)
            case _:
                raise unsayable(f"`{scope}.{name}` is not a value", expr)

    def captured(self, name: str) -> Captured:
        """The type of the captured tensor `p.name`. Errors: CU603 if there is none."""
        kind = self._field(Name(name), self.kernel.params, name)
        if not isinstance(kind, Captured):
            raise unsayable(f"parameter `{name}` is not a captured tensor", Name(name))
        return kind

    def _field(self, expr: Expr, fields: tuple[Field, ...], name: str) -> FieldType:
        for item in fields:
            if item.name == name:
                return item.type
        raise unsayable(f"there is no field `{name}`", expr)

    def _call(self, expr: Expr, fn: str, args: list[ValueType]) -> ValueType:
        info = FUNCTIONS.get(fn)
        if info is None or len(args) != info.arity:
            raise unsayable(f"`{fn}` with {len(args)} arguments has no meaning in a region", expr)
        axes = _axes(args)
        match info.result:
            case Result.SAME:
                return ValueType(_common(args), axes, any(a.partial for a in args))
            case Result.FLOAT:
                return ValueType(DType.F32, axes)
            case Result.INT:
                return ValueType(DType.I64 if fn == "i64" else DType.I32, axes)
            case Result.BOOL:
                return ValueType(DType.BOOL, axes)
            case Result.SELECT:
                return ValueType(_common(args[1:]), axes, any(a.partial for a in args))
            case Result.ROW:
                return ValueType(DType.F32, axes & {Axis.ROW})
            case Result.PARTIAL_ROW:
                return ValueType(DType.F32, axes & {Axis.ROW}, partial=True)
            case Result.ADD_LANES:
                return ValueType(DType.F32, axes)
            case Result.ANY_LANE:
                return BOOL
            case _:
                assert_never(info.result)

    # ---- signs -------------------------------------------------------------------------------------------------------

    def nonnegative(self, expr: Expr) -> bool:
        """True only if the integer is provably >= 0."""
        match expr:
            case IntLit(value):
                return value >= 0
            case Name(name):
                return self._nonnegative_name(name)
            case Attr(Name("tile"), name):
                return name in TILE_FIELDS
            case Attr(Name("p"), name):
                host = next(
                    (f.type.host for f in self.kernel.params if f.name == name and isinstance(f.type, Scalar)), None
                )
                return host is not None and self.nonnegative(host)
            case Binary(op, left, right):
                return op in _KEEPS_SIGN and self.nonnegative(left) and self.nonnegative(right)
            case Call(fn, args):
                quantifier = _SIGN_OF_CALL.get(fn)
                return quantifier is not None and quantifier(self.nonnegative(a) for a in args[-2:])
            case _:
                return False

    def _nonnegative_name(self, name: str) -> bool:
        if name in self.locals:
            return name in self._nonnegative
        constant = next((c.value for c in self.kernel.constants if c.name == name), -1)
        return name in SIZES or name in ACCESSORS or name in ("kv_start", "t") or constant >= 0


_KEEPS_SIGN: Final = ("+", "*", "//", "%", "**")
_SIGN_OF_CALL: Final[dict[str, Callable[..., bool]]] = {
    "maximum": any, "minimum": all, "where": all, "ceil_div": all, "floor_div": all, "floor_mod": all, "abs": lambda _: True,
}  # fmt: skip


def _axes(types: Iterable[ValueType]) -> frozenset[Axis]:
    return frozenset(axis for t in types for axis in t.axes)


def _common(types: list[ValueType]) -> DType:
    for dtype in (DType.F32, DType.I64, DType.I32):
        if any(t.dtype is dtype for t in types):
            return dtype
    return types[0].dtype


def _binary(op: str, left: ValueType, right: ValueType) -> ValueType:
    axes = left.axes | right.axes
    if op in COMPARISONS:
        return ValueType(DType.BOOL, axes)
    if op == "/":
        return ValueType(DType.F32, axes, left.partial)
    return ValueType(_common([left, right]), axes, left.partial or right.partial)
