"""The kernel body to CuIR: workers, loops, copies, waits, as written."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from cubridge.frontend.cuda.affine import plus_one
from cubridge.frontend.cuda.bodies import Bodies
from cubridge.frontend.cuda.context import THREADS, Context
from cubridge.frontend.cuda.geometry import fragment_columns, register_tile
from cubridge.frontend.cuda.inlining import roots, written
from cubridge.frontend.cuda.loops import steps_by_one
from cubridge.frontend.cuda.numbers import convert, negate
from cubridge.frontend.cuda.regions import RESERVED
from cubridge.frontend.cuda.signs import Signs
from cubridge.frontend.cuda.syntax import (
    Block,
    BreakLoop,
    CallOf,
    CExpr,
    ContinueLoop,
    CStmt,
    Declare,
    Evaluate,
    ForLoop,
    Ident,
    IfElse,
    Return,
    Truth,
    WhileLoop,
    assigned_names,
)
from cubridge.frontend.cuda.values import (
    Fragment,
    Kind,
    Names,
    Opaque,
    Scalar,
    Scope,
    Value,
    refusal,
)
from cubridge.ir.coordinates import THREAD_NAMES
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.families import FORWARD
from cubridge.ir.nodes import (
    NEGATED,
    Assign,
    BarrierArrive,
    Binary,
    BoolLit,
    Break,
    BulkCommit,
    BulkWaitRead,
    Call,
    Expr,
    For,
    If,
    IntLit,
    Loop,
    Name,
    Node,
    ReduceAsync,
    Stmt,
    StoreAsync,
)
from cubridge.ir.source import Span
from cubridge.ir.types import Axis
from cubridge.ir.walk import children

_STATES: Final = {Kind.ROW: "row_state", Kind.KEPT: "score_state"}
"""What makes the state of a team, not written yet."""


class KernelLifter(Bodies):
    """Lifts the body of the kernel."""

    def __init__(self, context: Context, facts: Signs) -> None:
        super().__init__(context, facts)
        self.names.taken |= RESERVED | frozenset(THREAD_NAMES)
        parameter = context.kernel.params[0]
        self.names.values[parameter.name] = Scope(Kind.PARAMS)
        self.exits = frozenset((Return,))
        self.breaks = False

    def is_alias(self, value: Scalar) -> bool:
        return False

    # ---- declarations ------------------------------------------------------------------------------------------------

    def call(self, call: CallOf) -> Value | None:
        macro = self.context.program.macro(call.fn)
        if macro is None or macro.params is None:
            return super().call(call)
        lemma = self.context.lemmas.find(self.context.digests.macro(macro))
        match call.args:
            case (Ident(type_name), Ident(name)) if lemma is not None and lemma.kind == "macro":
                return self._shared(type_name, name, call)
            case _ if call.fn in self.context.lemmas.names:
                note = Note("it is defined here", macro.span)
                message = f"the macro `{call.fn}` is not the one that was tested"
                raise CuError(Diagnostic("CU424", message, self.place(call.span), (note,)))
            case _:
                return super().call(call)

    def _shared(self, type_name: str, name: str, call: CallOf) -> None:
        struct = self.context.program.structs.get(type_name)
        if struct is None:
            raise refusal(f"there is no struct `{type_name}`", self.place(call.span))
        if self.context.shared not in (None, struct):
            raise refusal("a second struct of shared memory", self.place(call.span))
        self.context.shared = struct
        self.names.values[name] = Scope(Kind.SHARED)

    def array(self, declared: Declare) -> None:
        place = self.place(declared.span)
        if declared.value is not None:
            raise refusal("a register tile with an initialiser", place, help="use the helper that zeroes it")
        axes, dims = self._array_axes(declared, place), declared.type.dims
        name = self.names.fresh(declared.name)
        dtype = self.dtype(declared.type, declared.span)
        self.names.values[declared.name] = Fragment(Name(name, span=place), dtype, axes)
        columns = None if axes == (self.context.family.rows,) else fragment_columns(self, dims[-1], place)
        made = register_tile(self, name, dtype, columns, place)
        self.emit(made if axes[0] is self.context.family.rows else replace(made, rows=IntLit(1, span=place)))

    def _array_axes(self, declared: Declare, place: Span) -> tuple[Axis, ...]:
        """Of a tile s[rows][columns], of a vector x[rows], or, where queries are columns, of their numbers x[columns]."""
        family, dims = self.context.family, declared.type.dims
        if family.name == FORWARD:
            axes = self.axes(declared.type, declared.span)
            if axes in ((Axis.ROW, Axis.KEY), (Axis.ROW, Axis.OUT), (Axis.ROW,)):
                return axes
        elif self._counts_rows(dims[0]) and len(dims) <= 2:
            return (family.rows, Axis.OUT)[: len(dims)]
        elif family.columns is Axis.ROW and len(dims) == 1:
            return (family.columns,)
        raise refusal("a register array of the kernel is s[rows][columns] or x[rows]", place)

    def _counts_rows(self, extent: CExpr) -> bool:
        """Is it how many rows a thread holds, by a region's tile, or else by the lane map."""
        if self.context.axes:
            return self.context.axis_of(extent) is self.context.family.rows
        return self.context.constants.evaluate(extent) == self.context.fragment_rows.held

    def object(self, declared: Declare) -> None:
        place = self.place(declared.span)
        kept = self.context.kinds.get(declared.type.name)
        if kept in _STATES:
            self.emit(Assign(Scope(kept).expr, Call(_STATES[kept], (), span=place), span=place))
            self.names.values[declared.name] = Scope(kept)
            return
        lemma = self.context.type_lemma(declared.type)
        kind = "" if lemma is None else lemma.means
        if lemma is None or kind not in ("ring", "registers"):
            raise refusal(f"a local of type `{declared.type}` has no CuIR meaning", place)
        made = Name(self.names.fresh(declared.name), span=place)
        self.names.values[declared.name] = Opaque(made, declared.type)
        if kind == "ring":
            slots = self.scalar(declared.type.args[0]).expr
            self.emit(Assign(made, Call("Ring", (slots,), span=place), span=place))
        else:
            columns = self.context.constants.use(lemma.cols, place)
            self.emit(register_tile(self, made.id, self.context.instance.dtype, columns, place))

    # ---- control -----------------------------------------------------------------------------------------------------

    def for_loop(self, loop: ForLoop) -> None:
        count = steps_by_one(loop)
        if count is not None and self._counts(count.name, count.stop, loop.body):
            self._counting(count.name, count.start, count.stop, count.inclusive, loop)
            return
        outer = self.names
        self.names = Names(outer)
        self.run(loop.init)
        self._endless(loop.condition, loop.body, loop.step, loop.span)
        self.names = outer

    def _counts(self, name: str, stop: CExpr, body: CStmt) -> bool:
        """Is the counter written by the loop's head alone?"""
        changed = assigned_names(body)
        return name not in changed and not (isinstance(stop, Ident) and stop.name in changed)

    def _counting(self, name: str, start: CExpr, stop: CExpr, inclusive: bool, loop: ForLoop) -> None:
        place = self.place(loop.span)
        first, last = self.scalar(start), self.scalar(stop)
        end = plus_one(last.expr, last.expr) if inclusive else last.expr
        outer = self.names
        self.names = Names(outer)
        made = Name(self.names.fresh(name), span=self.place(loop.init[0].span))
        self.names.values[name] = Scalar(made, first.dtype)
        self._count_from(made, first.expr)
        with self._signs_kept(loop.body.span) as made_body:
            made_body += self._loop_body(loop.body, breaks=False)
        body = tuple(made_body)
        self.names = outer
        if written(body) & {made, *roots(end)}:
            raise refusal("the loop changes its own counter or bound", place)
        self.emit(For(made.id, first.expr, end, body, span=place))

    def _count_from(self, counter: Name, start: Expr) -> None:
        """What is known of a counter: its sign. The name may have been that of a local of another scope."""
        facts = self.facts
        facts.changes(counter)
        facts.definitions.pop(counter, None)
        facts.naturals -= {counter.id}
        if facts.natural_by(start) is not None:
            facts.naturals |= {counter.id}

    def while_loop(self, loop: WhileLoop) -> None:
        self._endless(loop.condition, loop.body, None, loop.span)

    def _endless(self, condition: CExpr | None, body: CStmt, step: CExpr | None, span: Span) -> None:
        """`while True`, left where the condition fails; the step comes last, also behind `continue`."""
        with self._signs_kept(body.span) as made:
            if condition is not None and condition != Truth(True):
                place = self.place(condition.span)
                made.append(If(_not(self.condition(condition), place), (Break(span=place),), span=place))
            made += self._loop_body(body, breaks=True)
            if step is not None:
                made += self.collect(Evaluate(step, span=step.span))
        self.emit(Loop(tuple(made), span=self.place(span)))

    @contextmanager
    def _signs_kept(self, span: Span) -> Generator[list[Stmt], None, None]:
        """Around the statements of a loop, which go into the list. Of outer locals only the signs are known inside, and the loop
        must keep those that a division in it rests on."""
        facts = self.facts
        definitions = {n: d for n, d in facts.definitions.items() if isinstance(n, Name)}
        for name in definitions:
            facts.settle(name)
        reasons, relied, before = facts.reasons, facts.relied, facts.naturals
        facts.reasons, facts.relied = {}, frozenset()
        made: list[Stmt] = []
        yield made
        changed = written(made)
        for name in sorted(facts.rests_on() & before - facts.naturals):
            if Name(name) in changed:
                message = f"`{name}` may become negative in this loop, where a `/` or `%` needs it not to"
                help = "write `floor_div(a, b)` or `floor_mod(a, b)` in the loop"
                raise refusal(message, self.place(span), "CU426", help)
        facts.definitions |= {n: d for n, d in definitions.items() if not ({n} | roots(d)) & changed}
        facts.relied = facts.rests_on() | relied
        for name, more in reasons.items():
            facts.reasons[name] = facts.reasons.get(name, frozenset()) | more

    def _loop_body(self, body: CStmt, *, breaks: bool) -> tuple[Stmt, ...]:
        """The statements of a loop. A name for an object from outside must mean the same in every round."""
        outside = [(r, r.uses) for r in self.names.references() if not r.stale]
        outer, self.breaks = self.breaks, breaks
        made = self.collect(body, frozenset((ContinueLoop,)))
        self.breaks = outer
        if any(r.stale and r.uses > uses for r, uses in outside):
            raise refusal("the loop changes what subscripts an object that was named outside", self.place(body.span))
        return made

    def branch(self, branch: IfElse, rest: Sequence[CStmt]) -> bool:
        place = self.place(branch.span)
        condition = self.condition(branch.condition)
        if isinstance(condition.expr, BoolLit):
            chosen = branch.then if condition.expr.value else branch.orelse
            if chosen is not None:
                self.block(chosen)
            return False
        if self.skips_rest(branch):
            skipped = _not(condition, place)
            self.emit(If(skipped, self.collect(Block(tuple(rest)), self.exits), span=place))
            return True
        orelse = () if branch.orelse is None else self.collect(branch.orelse)
        self.emit(If(condition.expr, self.collect(branch.then), orelse, span=place))
        return False

    def leave(self, statement: CStmt) -> None:
        place = self.place(statement.span)
        match statement:
            case BreakLoop() if self.breaks:
                self.emit(Break(span=place))
            case BreakLoop():
                raise refusal("`break` leaves only a loop that does not count", place)
            case Return(None):
                raise refusal("`return` must stand alone in a branch at the outer level of a body", place)
            case _:
                raise refusal("`continue` must stand alone in a branch at the outer level of a loop", place)


def _not(condition: Scalar, place: Span) -> Expr:
    """The negation; of integers, the opposite comparison."""
    match condition.expr:
        case Binary(op, left, right) if op in NEGATED:
            return Binary(NEGATED[op], left, right, span=place)
        case _:
            return negate(convert(condition, condition.dtype, place), place).expr


# ---- thread tests ----------------------------------------------------------------------------------------------------


def thread_faults(body: Iterable[Stmt]) -> Iterator[Diagnostic]:
    """CU427 for each use of the thread index outside: `if thread == 0` around initialisation or an elected role, and a leader,
    one thread of a warpgroup, that only arrives and copies."""
    statements = list(body)
    leaders: dict[str, Span] = {}
    yield from _thread_uses(statements, leaders)


def _thread_uses(body: Sequence[Stmt], leaders: dict[str, Span]) -> Iterator[Diagnostic]:
    for statement in body:
        match statement:
            case Assign(Name(name), value) if _is_leader(value):
                leaders[name] = statement.span
            case If(condition, then, orelse) if condition == _FIRST and not orelse:
                yield from _thread_uses(then, leaders)
            case If(Name(name) | Binary("&", Name(name), _), then, orelse) if name in leaders:
                if orelse or not all(isinstance(s, _BY_ONE_THREAD) for s in then):
                    yield Diagnostic(THREADS, f"`{name}` guards more than arrivals and bulk copies", statement.span)
            case If(condition, then, orelse):
                yield from _outside(condition, leaders)
                yield from _thread_uses(then, leaders)
                yield from _thread_uses(orelse, leaders)
            case For(body=inner):
                yield from _outside(replace(statement, body=()), leaders)
                yield from _thread_uses(inner, leaders)
            case Loop(inner):
                yield from _thread_uses(inner, leaders)
            case _:
                yield from _outside(statement, leaders)


_BY_ONE_THREAD: Final = (BarrierArrive, ReduceAsync, StoreAsync, BulkCommit, BulkWaitRead)
_FIRST: Final = Binary("==", Name("thread"), IntLit(0))


def _is_leader(expr: Expr) -> bool:
    match expr:
        case Binary("==", Binary("%", Name("thread"), _), IntLit(0)):
            return True
        case _:
            return False


def _outside(node: Node, leaders: dict[str, Span]) -> Iterator[Diagnostic]:
    if isinstance(node, Name) and (node.id == "thread" or node.id in leaders):
        message = "a test of the thread index outside the known idioms"
        help = "initialise under `if (thread_index() == 0)`, elect one thread of a role, or arrive by a leader"
        yield Diagnostic(THREADS, message, node.span, help=help)
        return
    for child in children(node):
        yield from _outside(child, leaders)
