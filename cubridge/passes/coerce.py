"""Casts where an expression mixes integers and floats: CuIR has none by itself, and Python's meaning is theirs.

Integer sums stay integer until they meet a float, so that `slope * (j - i)` casts once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from cubridge.ir.algebra.exprs import added, addends
from cubridge.ir.evaluate import divides_by_zero
from cubridge.ir.functions import FUNCTIONS, Result
from cubridge.ir.nodes import (
    COMPARISONS,
    Attr,
    Binary,
    BoolLit,
    Call,
    Captured,
    Expr,
    FloatLit,
    Index,
    IntLit,
    Kernel,
    Name,
    Row,
    Scalar,
    Unary,
)  # fmt: skip
from cubridge.ir.types import DType
from cubridge.passes.base import fault

Kind = Literal["bool", "int", "float"]
_FLOATS: Final = frozenset({"inf", "nan", "LOG2E", "LN2", "pi", "s", "x", "m", "o", "acc"})


class Coercion:
    """Types of the names of one kernel; `floats`: further names that are floats, such as row reductions."""

    def __init__(self, kernel: Kernel, floats: frozenset[str] = frozenset()) -> None:
        fields = {("p", f.name): f.type for f in kernel.params} | {("tile", f.name): f.type for f in kernel.tile_state}
        self.fields: Mapping[tuple[str, str], object] = fields
        self.floats = _FLOATS | floats | {c.name for c in kernel.constants if isinstance(c.value, float)}

    def number(self, expr: Expr) -> Expr:
        """The expression as a float."""
        return _as_float(*self.typed(expr))

    def predicate(self, expr: Expr) -> Expr:
        """The expression as a truth. Errors: CU507 for a number."""
        result, kind = self.typed(expr)
        if kind != "bool":
            raise fault("CU507", "this is a number, where a condition belongs", expr.span, help="compare it: `.. != 0`")
        return result

    def typed(self, expr: Expr) -> tuple[Expr, Kind]:
        """The expression with casts, and what it is."""
        if divides_by_zero(expr):
            raise fault("CU507", "this divides by 0", expr.span)
        match expr:
            case BoolLit():
                return expr, "bool"
            case IntLit():
                return expr, "int"
            case FloatLit():
                return expr, "float"
            case Name(name):
                return expr, "float" if name in self.floats else "int"
            case Attr(Name(scope), name):
                return expr, self._field(scope, name)
            case Index(Attr(Name(scope), name) as base, indices):
                whole = tuple(self._integer(x) for x in indices)
                return Index(base, whole, span=expr.span), self._field(scope, name)
            case Unary(op, operand):
                inner, kind = self.typed(operand)
                return Unary(op, inner, span=expr.span), kind
            case Binary():
                return self._binary(expr)
            case Call():
                return self._call(expr)
            case _:
                raise fault("CU507", "this has no place in an expression of a pass", expr.span)

    def _integer(self, expr: Expr) -> Expr:
        inner, kind = self.typed(expr)
        if kind == "float":
            raise fault("CU507", "an index is an integer", expr.span)
        return inner if kind == "int" else Call("where", (inner, IntLit(1), IntLit(0)), span=expr.span)

    def _field(self, scope: str, name: str) -> Kind:
        match self.fields.get((scope, name)):
            case Scalar(dtype) | Captured(dtype) | Row(dtype):
                return "float" if dtype.is_float else "bool" if dtype is DType.BOOL else "int"
            case _:
                return "int" if scope == "tile" else "float"

    def _binary(self, expr: Binary) -> tuple[Expr, Kind]:
        if expr.op in ("+", "-"):
            return self._sum(expr)
        (left, a), (right, b) = self.typed(expr.left), self.typed(expr.right)
        if expr.op in ("&", "|", "^") and a == b == "bool":
            return Binary(expr.op, left, right, span=expr.span), "bool"
        if _is_whole_power(expr) and a != "bool":
            return Binary("**", left, right, span=expr.span), a
        left, right, kind = self._common(left, a, right, b, as_float=expr.op in ("/", "**"))
        if expr.op in ("&", "|", "^") or (expr.op in ("//", "%") and kind == "float"):
            raise fault("CU507", f"`{expr.op}` does not take these operands", expr.span)
        return Binary(expr.op, left, right, span=expr.span), "bool" if expr.op in COMPARISONS else kind

    def _sum(self, expr: Binary) -> tuple[Expr, Kind]:
        """A sum with its integer part added up before it is cast, once."""
        typed = [(sign, *self.typed(part)) for sign, part in addends(expr)]
        if not any(kind == "float" for _, _, kind in typed):
            return added([(sign, _as_int(part, kind)) for sign, part, kind in typed]), "int"
        whole = [(sign, part) for sign, part, kind in typed if kind == "int"]
        if len(whole) < 2:
            return added([(sign, _as_float(part, kind)) for sign, part, kind in typed]), "float"
        floats = [(sign, _as_float(part, kind)) for sign, part, kind in typed if kind != "int"]
        return added([*floats, (1, Call("f32", (added(whole),)))]), "float"

    def _common(self, left: Expr, a: Kind, right: Expr, b: Kind, as_float: bool = False) -> tuple[Expr, Expr, Kind]:
        if as_float or "float" in (a, b):
            return _as_float(left, a), _as_float(right, b), "float"
        return _as_int(left, a), _as_int(right, b), "int"

    def _call(self, call: Call) -> tuple[Expr, Kind]:
        typed = [self.typed(a) for a in call.args]
        info = FUNCTIONS.get(call.fn)
        if info is None or info.arity != len(typed):
            raise fault("CU507", f"`{call.fn}` has no place here, or takes other arguments", call.span)
        match info.result:
            case Result.SELECT:
                (condition, _), (then, a), (otherwise, b) = typed
                if a == b:
                    return Call("where", (condition, then, otherwise), span=call.span), a
                then, otherwise, kind = self._common(then, a, otherwise, b)
                return Call("where", (condition, then, otherwise), span=call.span), kind
            case Result.SAME if len(typed) == 2:
                (left, a), (right, b) = typed
                left, right, kind = self._common(left, a, right, b)
                return Call(call.fn, (left, right), span=call.span), kind
            case Result.SAME | Result.INT:
                kind: Kind = "int" if info.result is Result.INT else typed[0][1]
                return Call(call.fn, tuple(a for a, _ in typed), span=call.span), kind
            case Result.FLOAT:
                return Call(call.fn, tuple(_argument(call.fn, a, kind) for a, kind in typed), span=call.span), "float"
            case _:
                raise fault("CU507", f"`{call.fn}` has no place here", call.span)


def _argument(fn: str, argument: Expr, kind: Kind) -> Expr:
    return argument if fn == "f32" and kind != "bool" else _as_float(argument, kind)


def _is_whole_power(expr: Binary) -> bool:
    return expr.op == "**" and isinstance(expr.right, IntLit) and expr.right.value >= 0


def _as_float(expr: Expr, kind: Kind) -> Expr:
    match expr:
        case IntLit(value):
            return FloatLit(float(value), span=expr.span)
        case _ if kind == "int":
            return Call("f32", (expr,), span=expr.span)
        case _ if kind == "bool":
            return Call("where", (expr, FloatLit(1.0), FloatLit(0.0)), span=expr.span)
        case _:
            return expr


def _as_int(expr: Expr, kind: Kind) -> Expr:
    return Call("where", (expr, IntLit(1), IntLit(0)), span=expr.span) if kind == "bool" else expr
