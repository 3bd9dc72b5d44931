"""Calls: regions, tested helpers, built-in functions; any other function of the text means what its body means."""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

from cubridge.frontend.cuda.affine import cancel_anchors
from cubridge.frontend.cuda.context import PLACED, Context, changed
from cubridge.frontend.cuda.expressions import Expressions
from cubridge.frontend.cuda.inlining import OWN_ROW
from cubridge.frontend.cuda.lemmas import OPERATIONS, Lemma, meaning
from cubridge.frontend.cuda.numbers import common_type, convert, float_literal
from cubridge.frontend.cuda.places import DISSOLVE
from cubridge.frontend.cuda.signs import Signs
from cubridge.frontend.cuda.structure import FunctionText
from cubridge.frontend.cuda.syntax import CallOf, CExpr, Number
from cubridge.frontend.cuda.values import (
    SCALAR_TYPES,
    SEQUENCES,
    Built,
    Fragment,
    Kind,
    LaneIndex,
    Pointer,
    Scalar,
    Scope,
    Value,
    describe,
    refusal,
)
from cubridge.frontend.cuda.views import head_of
from cubridge.frontend.cuda.vocabulary import BUILTIN_FUNCTIONS, BUILTIN_STATEMENTS
from cubridge.ir.diagnostics import CuError
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import OPS, Attr, Binary, Call, Expr, Index, IntLit, Name, RegionCall, RingNext, Stmt
from cubridge.ir.source import Span
from cubridge.ir.types import Axis, DType
from cubridge.ir.walk import walk

_WALK_DTYPES: Final = (None, DType.I32, DType.I32, DType.BOOL)
"""Of the regions of a walk: a sequence, a count, a tile, whether it is masked."""
_BITS_AS_FLOAT: Final = "__int_as_float"
_SHARED_ADDRESS: Final = "__cvta_generic_to_shared"


class Calls(Expressions):
    """Lifts calls; `out` takes the statements that they stand for."""

    def __init__(self, context: Context, facts: Signs) -> None:
        super().__init__(context, facts)
        self.out: list[Stmt] = []

    @abstractmethod
    def inline(self, function: FunctionText, call: CallOf, args: Sequence[Value]) -> Value | None:
        """What the body of a function means with these arguments."""

    def emit(self, statement: Stmt) -> None:
        self.out.append(statement)

    def call(self, call: CallOf) -> Value | None:
        place = self.place(call.span)
        if call.receiver is not None:
            return self._method(call, self.value(call.receiver))
        if self.context.program.macro(call.fn) is not None:
            raise refusal(f"the macro `{call.fn}` has no CuIR meaning", place)
        overloads = self.context.program.functions.get(call.fn)
        if overloads is None:
            return self._builtin(call)
        args = [self.value(a) for a in call.args]
        function = self._overload(overloads, args, place, call.fn)
        if self.context.regions.get(call.fn) is function:
            return self._region(call, args)
        if function is self.context.schedule:
            return Built(Kind.TILE, Call("work_tile", self._arguments(args, call), span=place))
        if function is self.context.placed:
            return Built(Kind.TILE, Call(PLACED, self._arguments(args, call), span=place))
        lemma = self.context.lemmas.find(self.context.digests.function(function))
        if lemma is not None:
            return self._lemma(lemma, function, args, call)
        if call.fn in self.context.lemmas.names:
            raise CuError(changed(call.fn, place, function.head_span))
        return self.inline(function, call, args)

    def _method(self, call: CallOf, owner: Value) -> None:
        place = self.place(call.span)
        kind = getattr(owner, "type", None)
        lemma = self.context.type_lemma(kind) if kind is not None else None
        if lemma is None or lemma.means != "ring" or call.fn != "next" or call.args:
            raise refusal(f"{describe(owner)} has no method `{call.fn}` in CuIR", place)
        self.emit(RingNext(self.as_expr(owner, call.span), span=place))

    # ---- which function ----------------------------------------------------------------------------------------------

    def _overload(
        self, overloads: Sequence[FunctionText], args: Sequence[Value], place: Span, name: str
    ) -> FunctionText:
        ranked = [(self._fit(f, args), f) for f in overloads if len(f.params) == len(args)]
        best = max((rank for rank, _ in ranked), default=-1)
        chosen = [f for rank, f in ranked if rank == best and rank >= 0]
        if len(chosen) != 1:
            raise refusal(
                f"no `{name}` takes these arguments" if not chosen else f"several `{name}` take these arguments", place
            )
        return chosen[0]

    def _fit(self, function: FunctionText, args: Sequence[Value]) -> int:
        """How well arguments fit parameters, -1 if they do not; C's rules, as far as kernels need them."""
        total = 0
        for parameter, value in zip(function.params, args, strict=True):
            kind = self.resolve(parameter.type)
            match value:
                case Fragment(dims=dims):
                    fits, exact = len(kind.dims) == len(dims), True
                case Scalar(dtype=dtype):
                    fits, exact = not kind.dims and not kind.pointers, SCALAR_TYPES.get(kind.name) == dtype
                case LaneIndex():
                    fits, exact = kind.name == "int" and not kind.dims, True
                case Pointer(type=have):
                    have = self.resolve(have)
                    fits, exact = kind.pointers > 0 and (kind.const or not have.const), kind.const == have.const
                case _:
                    fits, exact = not kind.dims, True
            if not fits:
                return -1
            total += exact
        return total

    # ---- regions -----------------------------------------------------------------------------------------------------

    def _region(self, call: CallOf, args: Sequence[Value]) -> Value | None:
        place = self.place(call.span)
        made = self._arguments(args, call)
        family = self.context.family
        if call.fn not in family.walk:
            self.emit(RegionCall(call.fn, made, span=place))
            return None
        value, dtype = Call(call.fn, made, span=place), _WALK_DTYPES[family.walk.index(call.fn)]
        return Built(SEQUENCES[family.sequence], value) if dtype is None else Scalar(value, dtype)

    def _arguments(self, args: Sequence[Value], call: CallOf) -> tuple[Expr, ...]:
        """Arguments of a region or of the schedule; the parameters are in scope everywhere in CuIR."""
        pairs = zip(args, call.args, strict=True)
        return tuple(self.as_expr(v, a.span) for v, a in pairs if v != Scope(Kind.PARAMS))

    # ---- tested helpers ----------------------------------------------------------------------------------------------

    def _lemma(self, lemma: Lemma, function: FunctionText, args: Sequence[Value], call: CallOf) -> Value | None:
        place = self.place(call.span)
        given = dict(zip(lemma.params, args, strict=True))
        match lemma.kind:
            case "rows":
                return self._row_of(args[0], place)
            case "columns":
                return self._column_of(args, place)
            case "view":
                return head_of(self, given, place)
            case "operation":
                self.emit(self._operation(lemma, given, call))
                return None
            case _:
                return self._proved_value(lemma, function, given, call)

    def _row_of(self, index: Value, place: Span) -> Scalar:
        if index != LaneIndex(self.context.family.rows):
            raise refusal("the lane map of rows takes the variable of a loop over the rows", place, DISSOLVE)
        family = self.context.family
        accessor = Name(family.rows.value, span=place)
        return Scalar(Binary("-", accessor, family.origin, span=place), DType.I32, frozenset((family.rows,)))

    def _column_of(self, args: Sequence[Value], place: Span) -> Scalar:
        """`frag_col(c)`, or `f32(start + frag_col(c))` with two arguments."""
        family = self.context.family
        match args[-1]:
            case LaneIndex(Axis.OUT):
                column: Expr = Name("e", span=place)
            case LaneIndex(axis) if axis is family.columns:
                column = Binary("-", Name(axis.value, span=place), family.column_origin, span=place)
            case _:
                raise refusal("the lane map of columns takes the variable of a loop over the columns", place, DISSOLVE)
        axes = frozenset(a.axis for a in args if isinstance(a, LaneIndex))
        if len(args) == 1:
            return Scalar(column, DType.I32, axes)
        start = self.as_scalar(args[0], place)
        total = cancel_anchors(Binary("+", start.expr, column, span=place))
        return Scalar(Call("f32", (total,), span=place), DType.F32, axes | start.axes)

    def _operation(self, lemma: Lemma, given: Mapping[str, Value], call: CallOf) -> Stmt:
        place = self.place(call.span)
        exprs = {name: self.as_expr(value, call.span) for name, value in given.items()}
        cls = OPERATIONS[lemma.op]
        made: dict[str, Expr | bool] = {}
        for name in (f.name for f in fields(cls) if f.name in lemma.fields):
            text = lemma.fields[name]
            made[name] = text if isinstance(text, bool) else put_in(self._formula(text, exprs, place), exprs, place)
        return cls(**made, span=place)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def _formula(self, text: str, given: Mapping[str, Expr], place: Span) -> Expr:
        """What the table says of a field; a constant in it that is no argument is one of the kernel's."""
        expr, constants = meaning(text), self.context.constants
        for node in walk(expr):
            if isinstance(node, Name) and node.id not in given and constants.is_constant(node.id):
                constants.use(node.id, place)
        return expr

    def _proved_value(self, lemma: Lemma, function: FunctionText, given: Mapping[str, Value], call: CallOf) -> Scalar:
        place = self.place(call.span)
        axes: frozenset[Axis] = frozenset()
        exprs: dict[str, Expr] = {}
        for name, value in given.items():
            if isinstance(value, Fragment):
                self._check_reduction(value, call)
                axes |= value.taken
                exprs[name] = value.expr
            else:
                number = self.as_scalar(value, call.span)
                axes |= number.axes
                exprs[name] = number.expr
        made = put_in(meaning(lemma.means), exprs, place)
        if isinstance(made, Call) and made.fn == "any_lane":
            self._check_vote(axes, place)
        return Scalar(made, self.dtype(function.result, call.span), axes)

    def _check_reduction(self, value: Fragment, call: CallOf) -> None:
        """A reduction reads a whole row (or tile): a loop over what it reduces may not be around it."""
        if set(value.dims) & set(self.loops):
            raise refusal(
                f"`{call.fn}` reads all columns inside a loop over them", self.place(call.span), DISSOLVE,
                "compute it before the loop",
            )  # fmt: skip

    # ---- built-in functions ------------------------------------------------------------------------------------------

    def _builtin(self, call: CallOf) -> Value | None:
        place = self.place(call.span)
        if call.fn in BUILTIN_STATEMENTS:
            self.emit(OPS[BUILTIN_STATEMENTS[call.fn]](span=place))
            return None
        match call.fn, call.args:
            case "__any_sync", (Number("0xffffffffu"), condition):
                return self._any_sync(condition, place)
            case "atomicAdd", (counters, amount):
                return self._atomic_add(self.value(counters), self.scalar(amount), place)
            case name, (Number(text),) if name == _BITS_AS_FLOAT:
                return self._bits(text, place)
            case name, (address,) if name == _SHARED_ADDRESS:
                return self.value(address)
            case name, args if name in BUILTIN_FUNCTIONS:
                return self._elementwise(BUILTIN_FUNCTIONS[name], [self.scalar(a) for a in args], place)
            case name, _:
                help = f"declare it in the text or a header; what lifting cannot read there {OWN_ROW}"
                raise refusal(f"`{name}` is not in the vocabulary", place, help=help)

    def _any_sync(self, condition: CExpr, place: Span) -> Scalar:
        value = self.condition(condition)
        self._check_vote(value.axes, place)
        return Scalar(Call("any_lane", (value.expr,), span=place), DType.BOOL)

    def _check_vote(self, axes: frozenset[Axis], place: Span) -> None:
        if axes - self.may_vote:
            raise refusal(
                "a vote inside an element loop", place, DISSOLVE, "collect the rows in an array, then vote once"
            )

    def _atomic_add(self, counters: Value, amount: Scalar, place: Span) -> Scalar:
        if not isinstance(counters, Pointer):
            raise refusal(f"atomicAdd on {describe(counters)}", place)
        at = IntLit(0, span=place) if counters.offset is None else counters.offset.expr
        return Scalar(Call("atomic_add", (counters.expr, at, amount.expr), span=place), DType.I32)

    def _bits(self, text: str, place: Span) -> Scalar:
        bits = int(text.rstrip("uUlL"), 0) & 0xFFFFFFFF
        return Scalar(float_literal(struct.unpack("f", struct.pack("I", bits))[0], place), DType.F32)

    def _elementwise(self, name: str, args: list[Scalar], place: Span) -> Scalar:
        if len(args) != FUNCTIONS[name].arity:
            raise refusal(f"`{name}` takes {FUNCTIONS[name].arity} arguments", place)
        dtype = args[0].dtype
        for other in args[1:]:
            dtype = common_type(Scalar(args[0].expr, dtype), other)
        exprs = tuple(convert(a, dtype, place).expr for a in args)
        return Scalar(Call(name, exprs, span=place), dtype, frozenset[Axis]().union(*(a.axes for a in args)))


def put_in(template: Expr, values: Mapping[str, Expr], place: Span) -> Expr:
    """A meaning of the table with the arguments in place of its parameters; what the table adds stands at `place`."""
    match template:
        case Name(name) if name in values:
            return values[name]
        case Index(base, indices):
            parts = tuple(put_in(x, values, place) for x in indices)
            return Index(put_in(base, values, place), parts, span=place)
        case Call(fn, args):
            return Call(fn, tuple(put_in(a, values, place) for a in args), span=place)
        case Binary(op, left, right):
            return Binary(op, put_in(left, values, place), put_in(right, values, place), span=place)
        case Attr(base, name):
            return Attr(put_in(base, values, place), name, span=place)
        case _:
            return replace(template, span=place)
