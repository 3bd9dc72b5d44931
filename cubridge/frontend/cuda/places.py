"""What C names stand for: locals, constants, parameters, fields, and elements by subscript."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Final

from cubridge.frontend.cuda.captured import captured_indices
from cubridge.frontend.cuda.context import Context
from cubridge.frontend.cuda.numbers import float_literal
from cubridge.frontend.cuda.signs import Signs
from cubridge.frontend.cuda.syntax import (
    CallOf,
    CExpr,
    CType,
    Ident,
)
from cubridge.frontend.cuda.values import (
    SCALAR_TYPES,
    Address,
    Failed,
    Fields,
    Fragment,
    Kind,
    LaneIndex,
    Names,
    Opaque,
    Plumbing,
    Pointer,
    Poisoned,
    Reference,
    Scalar,
    Scope,
    Value,
    View,
    describe,
    refusal,
)
from cubridge.frontend.cuda.vocabulary import COORDINATES, NUMBERS
from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    HostValue,
    MapOfTensor,
    TensorAddress,
    TensorStride,
    TileListAddress,
    Unread,
)
from cubridge.ir.nodes import Attr, BoolLit, Expr, Index, Name
from cubridge.ir.source import Span
from cubridge.ir.types import Axis, DType

DISSOLVE: Final = "CU425"
"""Code of element loops that are no tile expression."""

_C_DTYPES: Final = {"float": DType.F32, "int": DType.I32, "i64": DType.I64}
_AXIS_NAMES: Final = {Axis.ROW: "row", Axis.KEY: "column", Axis.OUT: "column"}


class Places(ABC):
    """Finds what names, members and subscripts of one function stand for. `site`: the call in the kernel's own text that everything
    read now stands for. `loops`: the element loops around the statement, by axis; `may_vote`: those whose elements may vote."""

    def __init__(self, context: Context, facts: Signs) -> None:
        self.context = context
        self.facts = facts
        self.names = Names()
        self.site: Span | None = None
        self.loops: tuple[Axis, ...] = ()
        self.may_vote: frozenset[Axis] = frozenset()
        self.expanding: set[str] = set()

    @abstractmethod
    def value(self, expr: CExpr) -> Value:
        """What an expression stands for."""

    @abstractmethod
    def call(self, call: CallOf) -> Value | None:
        """The value of a call, None if it has none; statements that it stands for are appended."""

    @abstractmethod
    def has_value(self, local: str) -> bool:
        """Has this CuIR local been written?"""

    def place(self, span: Span) -> Span:
        return self.site or span

    # ---- by wanted kind ----------------------------------------------------------------------------------------------

    def scalar(self, expr: CExpr) -> Scalar:
        return self.as_scalar(self.value(expr), expr.span)

    def as_scalar(self, value: Value, span: Span) -> Scalar:
        match value:
            case Scalar():
                return value
            case Opaque(made, kind) if kind.name in SCALAR_TYPES and not kind.dims:
                return Scalar(made, SCALAR_TYPES[kind.name])
            case LaneIndex(axis):
                what = _AXIS_NAMES[axis]
                raise refusal(
                    f"the loop variable of a {what} is used as a value", self.place(span), DISSOLVE,
                    f"it may only subscript, or feed the lane map of {what}s",
                )  # fmt: skip
            case Fragment():
                raise refusal(f"{describe(value)} is used as a number", self.place(span), DISSOLVE)
            case _:
                raise refusal(f"{describe(value)} has no value in CuIR", self.place(span))

    def as_expr(self, value: Value, span: Span) -> Expr:
        """What an operation or a region takes as an argument."""
        match value:
            case Scalar(made) | Opaque(made) | View(made):
                return made
            case Fragment(made, taken=taken) if not taken:
                return made
            case Scope():
                return value.expr
            case Pointer(expr=made, offset=None):
                return made
            case Address(of):
                return self.as_expr(of, span)
            case _:
                raise refusal(f"{describe(value)} cannot be an argument here", self.place(span))

    # ---- names --------------------------------------------------------------------------------------------------------

    def identifier(self, name: str, span: Span) -> Value:
        found = self.names.find(name)
        if found is not None:
            return self._local(found, name, self.place(span))
        if self.context.constants.is_constant(name):
            return self._constant(name, span)
        if name in NUMBERS:
            return Scalar(Name(NUMBERS[name], span=self.place(span)), DType.F32)
        raise refusal(f"`{name}` is not declared", self.place(span))

    def _local(self, found: Value, name: str, place: Span) -> Value:
        """What a name in scope stands for, read at `place`."""
        value = self._referred(found, name, place) if isinstance(found, Reference) else found
        match value:
            case Failed():
                raise Poisoned
            case Scalar(Name(local)) if not self.has_value(local):
                raise refusal(f"`{name}` is read before it is written", place)
            case Scalar(expr):
                return replace(value, expr=replace(expr, span=place))
            case _:
                return value

    def _referred(self, reference: Reference, name: str, place: Span) -> Value:
        reference.uses += 1
        if reference.stale:
            raise refusal(
                f"what subscripts `{name}` has changed since it was declared",
                place,
                help="name the object where it is used",
            )
        return reference.value

    def place_of(self, target: CExpr) -> Value:
        """What an assignment writes to; a local needs no value yet."""
        found = self.names.find(target.name) if isinstance(target, Ident) else None
        return found if isinstance(found, Scalar) else self.value(target)

    def _constant(self, name: str, span: Span) -> Value:
        """Integers keep their name, so that CuIR shows it; floats are their value."""
        place = self.place(span)
        constants = self.context.constants
        declared = self.context.program.constants.get(name)
        if declared is not None and declared.type.name == "float":
            return Scalar(float_literal(float(constants.value(name, place)), place), DType.F32)
        number = constants.number(name)
        if number is None:
            return self._expanded(name, place)
        if isinstance(number, bool):
            return Scalar(BoolLit(number, span=place), DType.BOOL)
        if isinstance(number, int):
            return Scalar(constants.use(name, place), DType.I32)
        return Scalar(float_literal(number, place), DType.F32)

    def _expanded(self, name: str, place: Span) -> Value:
        """A macro that is an expression, where it is used."""
        if name in self.expanding:
            raise refusal(f"`{name}` is defined by itself", place)
        self.expanding.add(name)
        try:
            return self.value(self.context.constants.definition(name, place))
        finally:
            self.expanding.discard(name)

    # ---- members and subscripts --------------------------------------------------------------------------------------

    def member(self, base: CExpr, name: str, span: Span) -> Value:
        place = self.place(span)
        if isinstance(base, Ident) and (base.name, name) in COORDINATES and self.names.find(base.name) is None:
            return self.coordinate(COORDINATES[base.name, name], place)
        owner = self.value(base)
        match owner:
            case Scope(Kind.PARAMS):
                return self._param(name, span)
            case Scope(kind):
                return self._field(kind, name, span)
            case Fields(values=values) if name in values:
                return values[name]
            case Fields():
                raise refusal(f"`{name}` is read before it is written", place)
            case Opaque(made, kind) if not kind.dims:
                return self._thing_member(made, kind, name, span)
            case _:
                raise refusal(f"{describe(owner)} has no field `{name}` here", place)

    def coordinate(self, name: str, place: Span) -> Scalar:
        """Where a thread or block is."""
        return Scalar(Name(name, span=place), DType.I32)

    def _param(self, name: str, span: Span) -> Value:
        place = self.place(span)
        param = self.context.params.get(name)
        declared = self.context.struct(Kind.PARAMS).field(name)
        if param is None or declared is None:
            raise refusal(f"the kernel has no parameter `{name}`", place)
        made = Attr(Name("p", span=place), name, span=place)
        match param.value:
            case HostValue():
                expr = made if param.size is None else Name(param.size, span=place)
                return Scalar(expr, _C_DTYPES[param.c_type.value])
            case TensorAddress() | CapturedAddress() | TileListAddress() | CounterAddress():
                return Pointer(param, made, declared.type)
            case MapOfTensor():
                return Opaque(made, declared.type)
            case TensorStride() | Unread():
                return Plumbing(param)

    def _field(self, kind: Kind, name: str, span: Span) -> Value:
        place = self.place(span)
        declared = self.context.struct(kind).field(name)
        if declared is None:
            raise refusal(f"the struct has no field `{name}`", place)
        made = Attr(Scope(kind).expr, name, span=place)
        if kind is Kind.SHARED:
            return Opaque(made, self.resolve(declared.type))
        dtype = self.dtype(declared.type, span)
        dims = self.axes(declared.type, span)
        return Fragment(made, dtype, dims) if dims else Scalar(made, dtype)

    def _thing_member(self, made: Expr, kind: CType, name: str, span: Span) -> Value:
        lemma = self.context.type_lemma(kind)
        if lemma is None or lemma.means != "ring" or name not in ("slot", "phase"):
            raise refusal(f"`{kind}` has no field `{name}` in CuIR", self.place(span))
        return Scalar(Attr(made, name, span=self.place(span)), DType.I32)

    def subscript(self, base: Value, index: CExpr, span: Span) -> Value:
        place = self.place(span)
        match base:
            case Fragment(made, dtype, dims, taken) if dims:
                axis = self._lane(index, dims[0])
                rest, taken = dims[1:], taken | {axis}
                return Fragment(made, dtype, rest, taken) if rest else Scalar(replace(made, span=place), dtype, taken)
            case Opaque(made, kind) if kind.dims:
                at = self.scalar(index).expr
                return Opaque(Index(made, (at,), span=place), replace(kind, dims=kind.dims[1:]))
            case Pointer(param, made, offset=None) if isinstance(param.value, CapturedAddress | TileListAddress):
                at = self.scalar(index)
                indices = captured_indices(param.value, at, place)
                dtype = DType.F32 if param.c_type.value == "float*" else DType.I32
                return Scalar(Index(made, indices, span=place), dtype, at.axes)
            case _:
                raise refusal(f"{describe(base)} takes no subscript here", place)

    def _lane(self, index: CExpr, wanted: Axis) -> Axis:
        found = self.value(index)
        if found == LaneIndex(wanted):
            return wanted
        what = _AXIS_NAMES[wanted]
        raise refusal(
            f"this subscript must be the variable of a loop over the {what}s", self.place(index.span), DISSOLVE
        )

    # ---- types --------------------------------------------------------------------------------------------------------

    def resolve(self, type: CType) -> CType:
        """The type with the aliases of the text taken away."""
        seen: set[str] = set()
        while type.name in self.context.program.aliases and type.name not in seen:
            seen.add(type.name)
            base = self.context.program.aliases[type.name][0]
            type = replace(type, name=base.name, args=base.args, pointers=type.pointers + base.pointers)
        return type

    def dtype(self, type: CType, span: Span) -> DType:
        dtype = SCALAR_TYPES.get(self.resolve(type).name)
        if dtype is None or type.pointers:
            raise refusal(f"CuIR has no type for `{type}`", self.place(span))
        return dtype

    def axes(self, type: CType, span: Span) -> tuple[Axis, ...]:
        """The axes of a register array, by its extents."""
        found = [self.context.axis_of(d) for d in type.dims]
        axes = tuple(a for a in found if a is not None)
        if len(axes) != len(found):
            raise refusal("the extents of this array are not those of rows or columns", self.place(span), DISSOLVE)
        return axes
