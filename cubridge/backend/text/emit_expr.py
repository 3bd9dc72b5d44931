"""CuIR expressions as C expressions in the kernel's own names. Which subscripts a value takes is its storage."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, assert_never

from pycparser import c_ast

from cubridge.backend.text import emit_c as c
from cubridge.backend.text.emit_types import Types, unsayable
from cubridge.backend.text.names import Spelling
from cubridge.ir.contract import padded_extents
from cubridge.ir.functions import FUNCTIONS, Result
from cubridge.ir.nodes import (
    SIZES,
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
)
from cubridge.ir.printer import print_expr
from cubridge.ir.region_types import ACCESSORS
from cubridge.ir.types import Axis, DType
from cubridge.ir.walk import walk

C_TYPES: Final = {DType.BOOL: "bool", DType.I32: "int", DType.I64: "i64", DType.F32: "float"}
FLOAT_MAX: Final = 3.4028235677973366e38
"""What is rounded to fp32 is infinite from here on: half a step beyond its largest number."""

_CONSTANTS: Final[dict[str, Callable[[], c_ast.Node]]] = {
    "inf": lambda: c.ident("INFINITY"),
    "nan": lambda: c.ident("NAN"),
    "LOG2E": lambda: c.ident("LOG2E"),
    "LN2": lambda: c.ident("LN2"),
    "pi": lambda: c.float_constant(math.pi),
}

_DIVISIONS: Final = {
    "//": ("/", "floor_div"),
    "%": ("%", "floor_mod"),
    "floor_div": ("/", "floor_div"),
    "floor_mod": ("%", "floor_mod"),
}
"""C's operator for operands that are provably never negative, and the helper for others: C truncates, CuIR floors."""


@dataclass
class Expressions:
    """Turns the expressions of one region, whose types hold, into C. `storage`: what subscripts a local."""

    types: Types
    spelling: Spelling
    storage: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def of(self, expr: Expr, dtype: DType | None = None) -> c_ast.Node:
        """The C of `expr`, as `dtype` if given. Errors: CU603 for what device code cannot say."""
        own = self.types.of(expr).dtype
        if dtype is DType.F32 and own.is_int:
            return c.float_constant(float(expr.value)) if isinstance(expr, IntLit) else c.cast("float", self.of(expr))
        match expr:
            case BoolLit(value):
                return c.ident("true" if value else "false")
            case IntLit(value):
                return c.int_constant(value)
            case FloatLit(value):
                if abs(value) >= FLOAT_MAX:
                    raise unsayable(f"{value} is too large for fp32", expr)
                return c.float_constant(value)
            case Name(name):
                return self._name(name)
            case Attr(Name(scope), name):
                return self._attr(expr, scope, name)
            case Index(Attr(Name("p"), name), indices):
                return self._element(name, indices)
            case Unary("~", operand) if own is DType.BOOL:
                return c.unary("!", self.of(operand))
            case Unary(op, operand):
                return c.unary(op, self.of(operand))
            case Binary(op, left, right):
                return self._binary(expr, op, left, right)
            case Call(fn, args):
                return self._call(expr, fn, args)
            case Attr() | Index() | Record():
                raise unsayable("region code cannot say this", expr)
            case _:
                assert_never(expr)  # pyright: ignore[reportArgumentType]

    # ---- names -------------------------------------------------------------------------------------------------------

    def _name(self, name: str) -> c_ast.Node:
        if name in self.types.locals:
            return self._stored(name, self.storage.get(name, ()))
        if name in self.types.fragments:
            return self._stored(self.spelling.argument(name), self._subscripts(self.types.fragments[name].axes))
        if name == "D" and self.spelling.names.head_dim is not None:
            return c.ident(self.spelling.names.head_dim)
        if name in SIZES:
            return self._size(name)
        if name in _CONSTANTS:
            return _CONSTANTS[name]()
        return c.ident(name if name in ACCESSORS else self.spelling.argument(name))

    def _stored(self, name: str, subscripts: tuple[str, ...]) -> c_ast.Node:
        return c.subscript(c.ident(name), *(c.ident(x) for x in subscripts))

    def _size(self, name: str) -> c_ast.Node:
        fields = self.spelling.names.size_fields
        if name not in fields:
            raise unsayable(f"no field of the kernel's Params holds the size {name}", Name(name))
        return c.member(c.ident(self.spelling.params), fields[name])

    def _attr(self, expr: Expr, scope: str, name: str) -> c_ast.Node:
        base = c.ident(self.spelling.params if scope == "p" else self.spelling.argument(scope))
        return c.subscript(c.member(base, name), *map(c.ident, self._subscripts(self.types.of(expr).axes)))

    def _subscripts(self, axes: frozenset[Axis]) -> tuple[str, ...]:
        """What subscripts a fragment over these axes: its rows first."""
        by_row = (self.spelling.r,) if self.types.family.rows in axes else ()
        return (*by_row, self.spelling.c) if axes.intersection(self.types.columns) else by_row

    def _element(self, name: str, indices: tuple[Expr, ...]) -> c_ast.Node:
        """`p.table[((i64)i0 * E1 + i1) * E2 + i2]`: 64-bit, as a product of extents may pass 2^31."""
        captured = self.types.captured(name)
        first, *rest = indices
        offset = c.cast("i64", self.of(first)) if rest else self.of(first)
        for extent, index in zip(padded_extents(captured.extents, captured.pad)[1:], rest, strict=True):
            offset = c.binary("+", c.binary("*", offset, self.of(extent)), self.of(index))
        return c.subscript(c.member(c.ident(self.spelling.params), name), offset)

    # ---- operators and calls -----------------------------------------------------------------------------------------

    def _binary(self, expr: Expr, op: str, left: Expr, right: Expr) -> c_ast.Node:
        if op in _DIVISIONS:
            return self._division(expr, op, left, right)
        dtype = self._common(left, right)
        return c.binary(op, self.of(left, dtype), self.of(right, dtype))

    def _common(self, *args: Expr) -> DType:
        """The element type of operands together; an integer literal may stand for a float."""
        found = [self.types.of(a).dtype for a in args]
        return next((d for d in (DType.F32, DType.I64, DType.I32) if d in found), DType.BOOL)

    def _division(self, expr: Expr, op: str, left: Expr, right: Expr) -> c_ast.Node:
        operator, helper = _DIVISIONS[op]
        if self.types.nonnegative(left) and self.types.nonnegative(right):
            return c.binary(operator, self.of(left), self.of(right))
        return self._int_helper(expr, helper, left, right)

    def _int_helper(self, expr: Expr, name: str, *args: Expr) -> c_ast.Node:
        if self._common(*args) is DType.I64:
            raise unsayable(f"`{name}` takes 32-bit integers on the device", expr)
        return c.call(name, *(self.of(a) for a in args))

    def _call(self, expr: Expr, fn: str, args: tuple[Expr, ...]) -> c_ast.Node:
        match fn:
            case "where":
                return self._where(expr, *args)
            case "f32":
                return self._to_float(args[0])
            case "i32" | "i64":
                return c.cast(C_TYPES[DType(fn)], self.of(args[0]))
            case "floor_div" | "floor_mod":
                return self._division(expr, fn, *args)
            case "rowmax" | "partial_rowsum":
                return c.call(str(FUNCTIONS[fn].cuda), self._array(args[0]))
            case _:
                return self._device_call(expr, fn, args)

    def _where(self, expr: Expr, condition: Expr, a: Expr, b: Expr) -> c_ast.Node:
        """A call where an element of a tile takes a function: a branch around one would serialise wgmma in flight."""
        dtype = self._common(a, b)
        parts = self.of(condition), self.of(a, dtype), self.of(b, dtype)
        by_call = dtype is DType.F32 and Axis.KEY in self.types.of(expr).axes and _are_long(a, b)
        return c.call("select", *parts) if by_call else c.select(*parts)

    def _to_float(self, operand: Expr) -> c_ast.Node:
        """`f32(j)` is an addition of a constant in the column loop, not a conversion per element; so is `f32(i)` of columns `i`."""
        family = self.types.family
        if operand == Name(family.columns.value) and family.walk:
            start = self.spelling.argument(print_expr(family.column_origin))
            return c.call("frag_col_f32", c.ident(start), c.ident(self.spelling.c))
        return c.cast("float", self.of(operand))

    def _array(self, operand: Expr) -> c_ast.Node:
        """A whole array for a helper: a row `x[r]` of columns, or `x` over the rows."""
        element = self.of(operand)
        if not isinstance(element, c_ast.ArrayRef):
            raise unsayable("a reduction reads an array", operand)
        return element.name

    def _device_call(self, expr: Expr, fn: str, args: tuple[Expr, ...]) -> c_ast.Node:
        info = FUNCTIONS[fn]
        if info.result is Result.INT and info.cuda_int is not None:
            return self._int_helper(expr, info.cuda_int, *args)
        dtype = self._common(*args) if info.result is Result.SAME else DType.F32
        name = {DType.F32: info.cuda, DType.I32: info.cuda_int}.get(dtype)
        if name is None:
            raise unsayable(f"`{fn}` of {dtype} has no device form", expr)
        return c.call(name, *(self.of(a, dtype) for a in args))


def _are_long(*arms: Expr) -> bool:
    """They take a function of floats, and read no captured tensor: such reads stay behind their condition."""
    parts = [node for arm in arms for node in walk(arm)]
    functions = (FUNCTIONS[n.fn] for n in parts if isinstance(n, Call) and n.fn in FUNCTIONS)
    return any(f.result is Result.FLOAT and f.cuda for f in functions) and not any(isinstance(n, Index) for n in parts)
