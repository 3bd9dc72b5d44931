"""C expressions to values: by the types of what they name, never by their text."""

from __future__ import annotations

from dataclasses import replace

from cubridge.frontend.cuda.inlining import has_effect
from cubridge.frontend.cuda.numbers import binary, common_type, convert, literal, negate, negative, truth
from cubridge.frontend.cuda.places import Places
from cubridge.frontend.cuda.syntax import (
    Assignment,
    Braces,
    CallOf,
    Cast,
    CExpr,
    CType,
    Ident,
    Infix,
    Member,
    Null,
    Number,
    OfType,
    Prefix,
    SizeOf,
    Subscript,
    Ternary,
    Truth,
    Unknown,
)
from cubridge.frontend.cuda.values import (
    SCALAR_TYPES,
    SEQUENCES,
    Address,
    Fields,
    Names,
    Pointer,
    Scalar,
    Value,
    View,
    describe,
    refusal,
)
from cubridge.ir.contract import CounterAddress
from cubridge.ir.nodes import Argument, BoolLit, Call, Record
from cubridge.ir.region_types import RECORDS
from cubridge.ir.source import Span
from cubridge.ir.types import DType


class Expressions(Places):
    """Lifts expressions of one function."""

    def value(self, expr: CExpr) -> Value:
        place = self.place(expr.span)
        match expr:
            case Number(text):
                return literal(text, place)
            case Truth(known):
                return Scalar(BoolLit(known, span=place), DType.BOOL)
            case Ident(name):
                return self.identifier(name, expr.span)
            case Member(base, name):
                return self.member(base, name, expr.span)
            case Subscript(base, index):
                return self.subscript(self.value(base), index, expr.span)
            case CallOf():
                value = self.call(expr)
                if value is None:
                    raise refusal(f"`{expr.fn}` gives no value", place)
                return value
            case Prefix(op, operand):
                return self._prefix(op, operand, expr.span)
            case Infix(op, left, right):
                return self._infix(op, left, right, expr.span)
            case Ternary(condition, then, other):
                return self.select(self.condition(condition), self.scalar(then), self.scalar(other), place)
            case Cast(type, operand):
                return self._cast(type, operand, expr.span)
            case Braces(type, items):
                return self._braces(type, items, expr.span)
            case OfType(type, name):
                return self._of_type(type, name, expr.span)
            case SizeOf():
                raise refusal("`sizeof` has no CuIR meaning", place, help="write the BYTES of the tile's type")
            case Assignment():
                raise refusal("an assignment inside an expression", place, help="make it a statement")
            case Null():
                raise refusal("a null pointer outside a comparison", place)
            case Unknown(kind):
                raise refusal(f"no CuIR meaning for {kind.replace('_', ' ')}", place)
            case _:
                raise refusal("no CuIR meaning for this expression", place)

    def condition(self, expr: CExpr) -> Scalar:
        value = self.value(expr)
        if isinstance(value, Pointer):
            return self._present(value, expr.span)
        return truth(self.as_scalar(value, expr.span), self.place(expr.span))

    # ---- operators ---------------------------------------------------------------------------------------------------

    def _prefix(self, op: str, operand: CExpr, span: Span) -> Value:
        place = self.place(span)
        match op:
            case "&":
                return Address(self.value(operand))
            case "-":
                return negative(self.scalar(operand), place)
            case "+":
                return self.scalar(operand)
            case "!":
                return negate(self.condition(operand), place)
            case _:
                raise refusal(f"no CuIR meaning for `{op}`", place)

    def _infix(self, op: str, left: CExpr, right: CExpr, span: Span) -> Value:
        place = self.place(span)
        if op in ("==", "!=") and isinstance(right, Null) != isinstance(left, Null):
            pointer = self.value(left if isinstance(right, Null) else right)
            if not isinstance(pointer, Pointer):
                raise refusal(f"{describe(pointer)} is compared with a null pointer", place)
            given = self._present(pointer, span)
            return given if op == "!=" else negate(given, place)
        a, b = self.value(left), self.value(right)
        if op in ("&&", "||") and isinstance(b, Scalar) and has_effect(b.expr):
            raise refusal(f"`{op}` computes both sides in CuIR, and this one changes memory", place)
        if op == "+" and isinstance(a, Pointer) and isinstance(a.param.value, CounterAddress) and a.offset is None:
            return replace(a, offset=self.as_scalar(b, span))
        if isinstance(a, Pointer | View) or isinstance(b, Pointer | View):
            raise refusal("pointer arithmetic", place, help="views and helpers do it")
        return binary(op, self.as_scalar(a, left.span), self.as_scalar(b, right.span), place, self.facts)

    def _present(self, pointer: Pointer, span: Span) -> Scalar:
        return Scalar(Call("present", (pointer.expr,), span=self.place(span)), DType.BOOL)

    def select(self, condition: Scalar, then: Scalar, other: Scalar, place: Span) -> Scalar:
        if has_effect(then.expr) or has_effect(other.expr):
            raise refusal("a selection computes both ways, and this one changes memory", place)
        dtype = then.dtype if then.dtype == other.dtype else common_type(then, other)
        a, b = convert(then, dtype, place), convert(other, dtype, place)
        return Scalar(
            Call("where", (condition.expr, a.expr, b.expr), span=place), dtype, condition.axes | a.axes | b.axes
        )

    def _cast(self, type: CType, operand: CExpr, span: Span) -> Value:
        place = self.place(span)
        value = self.value(operand)
        if isinstance(value, Address) and not type.reference:
            return value
        dtype = SCALAR_TYPES.get(self.resolve(type).name)
        if dtype is None or type.pointers:
            raise refusal(f"a cast to `{type}` has no CuIR meaning", place)
        return convert(self.as_scalar(value, span), dtype, place)

    # ---- structs and types -------------------------------------------------------------------------------------------

    def _braces(self, type: CType | None, items: tuple[CExpr, ...], span: Span) -> Value:
        if type is None or self.context.kinds.get(type.name) not in SEQUENCES.values():
            raise refusal("only a key or query sequence is made by braces", self.place(span))
        declared = self.context.program.structs[type.name].fields
        if len(items) != len(declared):
            raise refusal(f"`{type.name}` has {len(declared)} fields, here are {len(items)}", self.place(span))
        values = {
            f.name: convert(self.scalar(x), self.dtype(f.type, span), self.place(span))
            for f, x in zip(declared, items, strict=True)
        }
        return Fields(type.name, values)

    def record(self, fields: Fields, span: Span) -> Record:
        """A finished sequence. Errors: CU423 for a field that has no value."""
        declared = self.context.program.structs[fields.type].fields
        missing = [f.name for f in declared if f.name not in fields.values]
        if missing:
            raise refusal(f"`{missing[0]}` is not set", self.place(span))
        parts = (Argument(f.name, fields.values[f.name].expr, span=self.place(span)) for f in declared)
        return Record(RECORDS[self.context.family.walk[0]], tuple(parts), span=self.place(span))

    def _of_type(self, type: CType, name: str, span: Span) -> Value:
        """A static member of a tested type, such as `SharedTile<R, C>::BYTES`, by its definition."""
        place = self.place(span)
        struct = self.context.program.structs.get(type.name)
        member = None if struct is None else struct.field(name)
        if struct is None or member is None or member.value is None or self.context.type_lemma(type) is None:
            raise refusal(f"`{type.name}::{name}` has no CuIR meaning", place)
        inner = Names()
        for parameter, argument in zip(struct.template_params, type.args, strict=False):
            inner.values[parameter.name] = self.scalar(argument)
        outer, site = self.names, self.site
        self.names, self.site = inner, place
        try:
            return self.scalar(member.value)
        finally:
            self.names, self.site = outer, site
