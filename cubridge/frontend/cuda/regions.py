"""Region functions to CuIR: loops over the elements of register tiles dissolve into statements over whole tiles.

A loop dissolves because each of its statements reads and writes the element of its own row and column only: what is written
must be subscripted by all the loops around it, and a reduction over a row may not stand inside a loop over its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from cubridge.frontend.cuda.affine import has_anchor
from cubridge.frontend.cuda.bodies import Bodies
from cubridge.frontend.cuda.context import STRUCTURE, THREADS, Context
from cubridge.frontend.cuda.loops import counted
from cubridge.frontend.cuda.numbers import convert, negate
from cubridge.frontend.cuda.places import DISSOLVE
from cubridge.frontend.cuda.signs import NATURAL_FIELDS, Signs
from cubridge.frontend.cuda.structure import FunctionText
from cubridge.frontend.cuda.syntax import (
    Assignment,
    Block,
    CExpr,
    CStmt,
    Declare,
    Evaluate,
    ForLoop,
    IfElse,
    Parameter,
    Return,
    WhileLoop,
    assigned_names,
)
from cubridge.frontend.cuda.values import (
    SCALAR_TYPES,
    SEQUENCES,
    Failed,
    Fields,
    Fragment,
    Kind,
    LaneIndex,
    Names,
    Scalar,
    Scope,
    Value,
    refusal,
)
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import (
    NAMED_CONSTANTS,
    SIZES,
    Assign,
    Attr,
    Call,
    Expr,
    Function,
    If,
    Name,
    RegionCall,
    Stmt,
)
from cubridge.ir.region_types import ACCESSORS
from cubridge.ir.source import Span
from cubridge.ir.types import Axis, DType
from cubridge.ir.walk import SCOPES

RESERVED: Final = frozenset((*SIZES, *NAMED_CONSTANTS, *ACCESSORS, *SCOPES, "True", "False"))
"""Names that mean something in every region."""

SET_UP: Final = RegionCall("tile_setup", (Name("tile"),))
"""The end of what makes a work tile."""

_SCORES: Final = ("s", "dp", "ds", "w")
_ROW_VALUES: Final = ("lse", "delta", "d_lse")
_SCOPES: Final = {"tile": Kind.TILE, "row": Kind.ROW, "kept": Kind.KEPT, **SEQUENCES}


class RegionLifter(Bodies):
    """Lifts one region function, or the schedule."""

    def __init__(self, context: Context, facts: Signs) -> None:
        super().__init__(context, facts)
        self.result: Expr | None = None
        self.is_schedule = False
        self.given: tuple[Axis, ...] = ()

    def is_alias(self, value: Scalar) -> bool:
        return super().is_alias(value) or (not self.is_schedule and has_anchor(value.expr))

    def write(self, target: CExpr, old: Scalar, new: Scalar, place: Span) -> None:
        if not self.is_schedule and old.expr in NATURAL_FIELDS:
            raise refusal("only the schedule sets the coordinates of a work tile", place)
        super().write(target, old, new, place)

    # ---- loops -------------------------------------------------------------------------------------------------------

    def emit(self, statement: Stmt) -> None:
        allowed = isinstance(statement, Assign | If) or (self.is_schedule and isinstance(statement, RegionCall))
        if not allowed:
            raise refusal("this has no meaning in a region: regions compute values", statement.span)
        super().emit(statement)

    def coordinate(self, name: str, place: Span) -> Scalar:
        if not (self.is_schedule and name.startswith("block")):
            raise refusal("a region knows rows and keys, not threads", place, THREADS)
        return super().coordinate(name, place)

    def for_loop(self, loop: ForLoop) -> None:
        place = self.place(loop.span)
        count = counted(loop)
        if count is None:
            raise refusal("a region loop counts from 0 by 1 over rows or columns", place, DISSOLVE)
        axis = self.context.axis_of(count.stop)
        if axis is None:
            raise refusal("this loop does not run over all rows or all columns", self.place(count.stop.span), DISSOLVE)
        if axis in self.loops:
            raise refusal("a loop inside a loop over the same elements", place, DISSOLVE)
        outer = self.names
        self.names = Names(outer)
        self.names.values[count.name] = LaneIndex(axis)
        self.loops = (*self.loops, axis)
        self.block(loop.body)
        self.loops = self.loops[:-1]
        self.names = outer

    def while_loop(self, loop: WhileLoop) -> None:
        raise refusal("a region has no loops but those over rows and columns", self.place(loop.span), DISSOLVE)

    # ---- branches ----------------------------------------------------------------------------------------------------

    def branch(self, branch: IfElse, rest: Sequence[CStmt]) -> bool:
        place = self.place(branch.span)
        condition = self._decided(branch)
        if self.skips_rest(branch):
            vote = negate(condition, place)
            if _is_vote(vote.expr):
                self.emit(If(vote.expr, self.collect(Block(tuple(rest)), self.exits), span=place))
                return True
        if _is_vote(condition.expr) and branch.orelse is None and self.loops == self.given:
            self.emit(If(condition.expr, self.collect(branch.then), span=place))
            return False
        self._select_branch(condition, branch)
        return False

    def _decided(self, branch: IfElse) -> Scalar:
        """The condition. In a function of one row those at hand vote, not all rows of the warp: what a vote skips is a no-op for
        each that says no (CU225), so that the others do not matter."""
        self.may_vote = frozenset(self.given) if self.loops == self.given else frozenset()
        condition = self.condition(branch.condition)
        self.may_vote = frozenset()
        return condition

    def _select_branch(self, condition: Scalar, branch: IfElse) -> None:
        """`if (c) x = v;` as `x = where(c, v, x)`."""
        place = self.place(branch.span)
        match branch.then, branch.orelse:
            case Block((Evaluate(Assignment(target, "=", value)),)), None:
                old = self.as_scalar(self.value(target), target.span)
                new = convert(self.scalar(value), old.dtype, place)
                self.write(target, old, self.select(condition, new, old, place), place)
            case _:
                raise refusal("a branch in a region must be `any_lane`, or one assignment", place)

    def leave(self, statement: CStmt) -> None:
        if isinstance(statement, Return) and statement.value is None:
            raise refusal(
                "an early return in a region must be `if (!any_lane(..)) return;`", self.place(statement.span)
            )
        raise refusal("no CuIR meaning in a region", self.place(statement.span))

    # ---- declarations ------------------------------------------------------------------------------------------------

    def array(self, declared: Declare) -> None:
        """A value per row or column, `float x[ROWS]`, declared here and written in loops."""
        place = self.place(declared.span)
        if declared.value is not None:
            raise refusal("an array with an initialiser", place, help="fill it in a loop")
        axes = self.axes(declared.type, declared.span)
        if set(axes) & set(self.loops):
            raise refusal("an array over the elements of a loop inside that loop", place, DISSOLVE)
        made = Name(self.names.fresh(declared.name), span=place)
        around = frozenset(self.loops)
        self.names.values[declared.name] = Fragment(made, self.dtype(declared.type, declared.span), axes, around)

    def object(self, declared: Declare) -> None:
        if self.context.kinds.get(declared.type.name) in SEQUENCES.values():
            self.names.values[declared.name] = Fields(declared.type.name)
        elif self.context.kinds.get(declared.type.name) is Kind.TILE:
            self.names.values[declared.name] = Scope(Kind.TILE)
        else:
            raise refusal(
                f"a local of type `{declared.type}` has no CuIR meaning in a region", self.place(declared.span)
            )

    # ---- results -----------------------------------------------------------------------------------------------------

    def value_body(self, function: FunctionText, body: Block) -> None:
        """A body that ends in a value; early returns select it."""
        *most, last = body.body or (Block(()),)
        plain = not any(isinstance(s, IfElse) and _returns(s.then) for s in most)
        if not plain or not isinstance(last, Return) or last.value is None:
            value = self.chosen(body.body, function.result)
            self.result = value.expr if isinstance(value, Scalar) else None
            return
        self.run(most)
        if self.faults:
            return
        value = self.value(last.value)
        dtype = SCALAR_TYPES.get(self.resolve(function.result).name)
        match value:
            case Fields():
                self.result = self.record(value, last.span)
            case Scope(Kind.TILE):
                self.result = value.expr
            case _ if dtype is not None:
                self.result = convert(self.as_scalar(value, last.span), dtype, self.place(last.span)).expr
            case _:
                raise refusal("this value cannot be returned", self.place(last.span))


def _returns(then: CStmt) -> bool:
    return isinstance(then, Block) and bool(then.body) and isinstance(then.body[-1], Return)


def _is_vote(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn == "any_lane"


def lift_region(
    name: str, function: FunctionText, context: Context, facts: Signs
) -> tuple[Function | None, list[Diagnostic]]:
    """One region function; None if it has faults."""
    lifter = RegionLifter(context, replace(facts, definitions=dict(facts.definitions)))
    arguments = context.family.regions[name]
    lifter.names.taken |= RESERVED | set(arguments)
    faults = list(_bind_arguments(lifter, function, arguments))
    if not faults:
        _lift_body(lifter, function, name in context.family.walk)
    if faults or lifter.faults:
        return None, [*faults, *lifter.faults]
    return Function(name, arguments, tuple(lifter.out), lifter.result, span=function.span), []


def lift_schedule(context: Context, facts: Signs) -> tuple[Function | None, list[Diagnostic]]:
    """`work_tile`: block coordinates or a work index to a query tile."""
    function = context.schedule
    lifter = RegionLifter(context, replace(facts, definitions=dict(facts.definitions)))
    lifter.is_schedule = True
    lifter.names.taken |= RESERVED
    numbers = [p for p in function.params if context.kinds.get(p.type.name) is not Kind.PARAMS]
    names = ("work",) if len(numbers) == 1 else tuple(p.name for p in numbers)
    faults = list(_bind_arguments(lifter, function, names))
    if not faults:
        _lift_body(lifter, function, True)
    if faults or lifter.faults:
        return None, [*faults, *lifter.faults]
    return Function("work_tile", names, tuple(lifter.out), lifter.result, span=function.span), []


def placed_faults(context: Context, facts: Signs) -> Iterator[Diagnostic]:
    """CU429 unless `tile_at`, where there is one, gives the work tile of the coordinates that it takes."""
    function = context.placed
    if function is None:
        return
    lifter = RegionLifter(context, replace(facts, definitions=dict(facts.definitions)))
    lifter.is_schedule = True
    lifter.names.taken |= RESERVED
    names = context.family.coordinates
    faults = list(_bind_arguments(lifter, function, names))
    if not faults:
        _lift_body(lifter, function, True)
    yield from (*faults, *lifter.faults)
    sets = tuple(Assign(Attr(Name("tile"), name), Name(name)) for name in names)
    if not faults and (tuple(lifter.out), lifter.result) != ((*sets, SET_UP), Name("tile")):
        help = f"set {', '.join(names)} in turn, then `tile_setup(tile, p); return tile;`"
        message = f"`{function.name}` does not give the work tile of its arguments"
        yield Diagnostic(STRUCTURE, message, function.head_span, help=help)


def _lift_body(lifter: RegionLifter, function: FunctionText, gives_value: bool) -> None:
    body = function.body()
    lifter.assigned = assigned_names(body)
    lifter.exits = frozenset((Return,))
    try:
        if gives_value:
            lifter.value_body(function, body)
        else:
            statements = body.body
            while statements and isinstance(statements[-1], Return) and statements[-1].value is None:
                statements = statements[:-1]
            lifter.run(statements)
    except CuError as error:
        lifter.faults += error.diagnostics


def _bind_arguments(lifter: RegionLifter, function: FunctionText, names: Sequence[str]) -> Iterator[Diagnostic]:
    """Give the parameters their CuIR meaning, by position; yields faults of the signature."""
    context = lifter.context
    params = [p for p in function.params if context.kinds.get(p.type.name) is not Kind.PARAMS]
    for parameter in function.params:
        if parameter not in params:
            lifter.names.values[parameter.name] = Scope(Kind.PARAMS)
    if len(params) != len(names):
        expected = ", ".join(names)
        yield Diagnostic(STRUCTURE, f"`{function.name}` takes {expected} and the parameters", function.head_span)
        return
    for parameter, name in zip(params, names, strict=True):
        value = _argument(context, parameter, name)
        if value is None:
            yield Diagnostic(STRUCTURE, f"argument `{name}` of `{function.name}` has another type", parameter.span)
            value = Failed()
        lifter.names.values[parameter.name] = value
        lifter.names.taken.add(name)
        if isinstance(value, LaneIndex):
            lifter.loops = (*lifter.loops, value.axis)
            lifter.given = lifter.loops


def _fragment_axes(context: Context, name: str) -> tuple[Axis, ...]:
    """Of an argument that is a tile or a vector; of others none."""
    if name in _SCORES:
        return context.family.rows, context.family.columns
    if name in _ROW_VALUES:
        return (Axis.ROW,)
    return (Axis.ROW, Axis.OUT) if name == "o" else ()


def _argument(context: Context, parameter: Parameter, name: str) -> Value | None:
    kind, wanted = parameter.type, _fragment_axes(context, name)
    if wanted:
        axes = tuple(context.axis_of(d) for d in kind.dims)
        return Fragment(Name(name), DType.F32, wanted) if kind.name == "float" and axes == wanted else None
    if name in _SCOPES:
        return Scope(_SCOPES[name]) if context.kinds.get(kind.name) is _SCOPES[name] else None
    if kind.name != "int" or kind.dims or kind.pointers:
        return None
    return LaneIndex(Axis.ROW) if name == "r" else Scalar(Name(name), DType.I32)
