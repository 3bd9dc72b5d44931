"""Statements that mean the same everywhere: declarations, assignments, asm and calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from cubridge.frontend.cuda.calls import Calls
from cubridge.frontend.cuda.context import Context
from cubridge.frontend.cuda.inlining import moves, written
from cubridge.frontend.cuda.numbers import binary, convert
from cubridge.frontend.cuda.places import DISSOLVE
from cubridge.frontend.cuda.signs import Signs
from cubridge.frontend.cuda.syntax import (
    Asm,
    Assignment,
    Block,
    Braces,
    CallOf,
    CExpr,
    ContinueLoop,
    CStmt,
    Declare,
    Evaluate,
    ForLoop,
    Ident,
    IfElse,
    Member,
    Return,
    UnknownStmt,
    WhileLoop,
)
from cubridge.frontend.cuda.values import (
    SCALAR_TYPES,
    SCOPE_NAMES,
    Address,
    Built,
    Failed,
    Fields,
    LaneIndex,
    Names,
    Opaque,
    Poisoned,
    Reference,
    Scalar,
    Scope,
    Value,
    describe,
    refusal,
)
from cubridge.frontend.cuda.vocabulary import INSTRUCTIONS, Instruction, normal_ptx
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import OPS, Assign, Attr, Call, Expr, IntLit, Name, Stmt
from cubridge.ir.region_types import ACCESSORS
from cubridge.ir.source import Span
from cubridge.ir.types import Axis
from cubridge.ir.walk import field_names


class Statements(Calls):
    """Lifts statements one by one, going on after a fault.

    `declared_in`: CuIR local -> the loops around its declaration. `valued`: CuIR locals that have a value. `assigned`: C names that
    the function assigns after their declaration. `exits`: statements that here do no more than skip the rest of the sequence,
    `return` at the outer level of a body, `continue` at that of a loop."""

    def __init__(self, context: Context, facts: Signs) -> None:
        super().__init__(context, facts)
        self.faults: list[Diagnostic] = []
        self.declared_in: dict[str, tuple[Axis, ...]] = {}
        self.assigned: frozenset[str] = frozenset()
        self.valued: set[str] = set()
        self.exits: frozenset[type[CStmt]] = frozenset()

    # ---- what regions and kernels do differently ---------------------------------------------------------------------

    @abstractmethod
    def for_loop(self, loop: ForLoop) -> None: ...

    @abstractmethod
    def while_loop(self, loop: WhileLoop) -> None: ...

    @abstractmethod
    def branch(self, branch: IfElse, rest: Sequence[CStmt]) -> bool:
        """Lift a branch; True if it took the statements after it too."""

    @abstractmethod
    def array(self, declared: Declare) -> None: ...

    @abstractmethod
    def object(self, declared: Declare) -> None:
        """A local of a struct type without an initialiser that makes it."""

    @abstractmethod
    def leave(self, statement: CStmt) -> None:
        """`break`, `continue`, `return`."""

    def has_value(self, local: str) -> bool:
        return local not in self.declared_in or local in self.valued

    def is_alias(self, value: Scalar) -> bool:
        """Is a local that keeps this value just another name for it?"""
        return isinstance(value.expr, Name) and value.expr.id in ACCESSORS

    # ---- sequences ---------------------------------------------------------------------------------------------------

    def run(self, statements: Sequence[CStmt]) -> None:
        for at, statement in enumerate(statements):
            if self._guarded(statement, statements[at + 1 :]):
                return

    def block(self, body: CStmt, exits: frozenset[type[CStmt]] = frozenset()) -> None:
        """A statement in a scope of its own."""
        outer = self.names, self.exits
        self.names, self.exits = Names(self.names), exits
        self.run(body.body if isinstance(body, Block) else (body,))
        self.names, self.exits = outer

    def collect(self, body: CStmt, exits: frozenset[type[CStmt]] = frozenset()) -> tuple[Stmt, ...]:
        """The statements that a controlled statement stands for."""
        outer, self.out = self.out, []
        self.block(body, exits)
        made, self.out = tuple(self.out), outer
        return made

    def skips_rest(self, branch: IfElse) -> bool:
        """Is this `if (c) return;` or `if (c) continue;` where it skips the statements behind it and nothing else?"""
        body = branch.then.body if isinstance(branch.then, Block) else (branch.then,)
        match body:
            case (Return(None) | ContinueLoop(),):
                return branch.orelse is None and type(body[0]) in self.exits
            case _:
                return False

    def emit(self, statement: Stmt) -> None:
        super().emit(statement)
        touched = written((statement,))
        for reference in self.names.references():
            if moves(reference.value, touched):
                reference.stale = True

    def _guarded(self, statement: CStmt, rest: Sequence[CStmt]) -> bool:
        """Lift one statement, keeping its faults; True if it took `rest` too."""
        try:
            return self._statement(statement, rest)
        except CuError as error:
            self.faults += error.diagnostics
        except Poisoned:
            pass
        if isinstance(statement, Declare):
            self.names.values[statement.name] = Failed()
        return False

    def _statement(self, statement: CStmt, rest: Sequence[CStmt]) -> bool:
        match statement:
            case Declare():
                self._declare(statement)
            case Evaluate(Assignment(target, op, value)):
                self._assign(target, op, value, statement.span)
            case Evaluate(CallOf() as call):
                if self.call(call) is not None:
                    raise refusal(f"the value of `{call.fn}` is dropped", self.place(statement.span))
            case Evaluate(expr):
                self.value(expr)
                raise refusal("this statement does nothing", self.place(statement.span))
            case Block():
                self.block(statement)
            case IfElse():
                return self.branch(statement, rest)
            case ForLoop():
                self.for_loop(statement)
            case WhileLoop():
                self.while_loop(statement)
            case Asm():
                self._asm(statement)
            case UnknownStmt(kind):
                raise refusal(f"no CuIR meaning for {kind.replace('_', ' ')}", self.place(statement.span))
            case _:
                self.leave(statement)
        return False

    # ---- declarations ------------------------------------------------------------------------------------------------

    def _declare(self, declared: Declare) -> None:
        kind = self.resolve(declared.type)
        declared = replace(declared, type=kind)
        place = self.place(declared.span)
        if kind.name == "auto":
            raise refusal("`auto` hides the type", place, help="write the type")
        if kind.reference:
            self._alias(declared)
        elif kind.dims:
            self.array(declared)
        elif kind.name in SCALAR_TYPES and not kind.pointers:
            self._scalar_local(declared)
        elif declared.value is None:
            self.object(declared)
        else:
            self._struct_local(declared, declared.value)

    def _alias(self, declared: Declare) -> None:
        if declared.value is None:
            raise refusal("a reference to nothing", self.place(declared.span))
        self.names.values[declared.name] = Reference(self.value(declared.value))

    def _scalar_local(self, declared: Declare) -> None:
        place = self.place(declared.span)
        dtype = SCALAR_TYPES[declared.type.name]
        if declared.value is None:
            made = Name(self.names.fresh(declared.name), span=place)
            self.names.values[declared.name] = Scalar(made, dtype)
            self.declared_in[made.id] = self.loops
            return
        value = convert(self.scalar(declared.value), dtype, place)
        if self.is_alias(value) and declared.name not in self.assigned:
            self.names.values[declared.name] = value
            return
        self.local(declared.name, value, place)

    def local(self, name: str, value: Scalar, place: Span) -> Scalar:
        """A new CuIR local with this value, called `name` in the text."""
        made = Name(self.names.fresh(name), span=place)
        bound = Scalar(made, value.dtype, value.axes)
        self.names.values[name] = bound
        self.declared_in[made.id] = self.loops
        self._learn(made, value)
        self.emit(Assign(made, value.expr, span=place))
        return bound

    def _struct_local(self, declared: Declare, initial: CExpr) -> None:
        place = self.place(declared.span)
        if isinstance(initial, Braces) and initial.type is None:
            initial = replace(initial, type=declared.type)
        value = self.value(initial)
        match value:
            case Built(kind, made):
                if self.names.holds(Scope(kind)):
                    raise refusal(f"a second `{SCOPE_NAMES[kind]}` beside one that is still in scope", place)
                self.emit(Assign(Scope(kind).expr, made, span=place))
                self.names.values[declared.name] = Scope(kind)
            case Fields():
                self.names.values[declared.name] = self._named_fields(value, place)
            case Opaque() | LaneIndex():
                raise refusal(f"a copy of {describe(value)}", place)
            case _:
                self.names.values[declared.name] = Reference(value)

    def _named_fields(self, fields: Fields, place: Span) -> Fields:
        named = Fields(fields.type)
        for name, value in fields.values.items():
            kept = isinstance(value.expr, Name | IntLit)
            named.values[name] = value if kept else self.local(name, value, place)
        return named

    # ---- assignments -------------------------------------------------------------------------------------------------

    def _assign(self, target: CExpr, op: str, value: CExpr, span: Span) -> None:
        place = self.place(span)
        if isinstance(target, Member) and isinstance(owner := self.value(target.base), Fields):
            self._assign_field(owner, target.name, op, value, place)
            return
        old = self.as_scalar(self.place_of(target), target.span)
        new = self.scalar(value)
        if op != "=":
            self.value(target)
            new = binary(op[:-1], old, new, place, self.facts)
        new = convert(new, old.dtype, place)
        self.write(target, old, new, place)

    def _assign_field(self, owner: Fields, name: str, op: str, value: CExpr, place: Span) -> None:
        declared = self.context.program.structs[owner.type].field(name)
        if declared is None or op != "=":
            raise refusal(f"`{owner.type}` has no field `{name}` to set", place)
        new = convert(self.scalar(value), self.dtype(declared.type, place), place)
        owner.values[name] = self.local(name, new, place)

    def write(self, target: CExpr, old: Scalar, new: Scalar, place: Span) -> None:
        """Assign `new` to what `target` names; it must be written once per element of the loops around it."""
        around = set(self.loops)
        match old.expr:
            case Name(name) if name in self.declared_in:
                has = set(self.declared_in[name])
            case Name() | Attr():
                has = set(old.axes)
            case _:
                raise refusal("this cannot be assigned to", place)
        if isinstance(old.expr, Name) and old.expr.id not in self.declared_in and not old.axes:
            raise refusal("this cannot be assigned to", place)
        if has != around:
            extra = ", ".join(sorted("row" if a is Axis.ROW else "column" for a in around - has)) or "element"
            raise refusal(f"written once per {extra} of a loop that does not subscript it", place, DISSOLVE)
        if isinstance(old.expr, Name) and old.expr.id in self.declared_in and isinstance(target, Ident):
            self.names.rebind(target.name, Scalar(old.expr, old.dtype, new.axes))
            self._learn(old.expr, new)
        self.emit(Assign(replace(old.expr, span=place), new.expr, span=place))

    def _learn(self, local: Name, new: Scalar) -> None:
        """What is known of a local after an assignment: its first value, or its sign if no value so far was negative."""
        facts = self.facts
        facts.changes(local)
        own, reasons = facts.natural_by(local), facts.natural_by(new.expr)
        facts.definitions.pop(local, None)
        if local.id not in self.valued:  # what the name stands for elsewhere says nothing of this local
            facts.naturals -= {local.id}
            facts.definitions[local] = new.expr
        elif own is not None and reasons is not None:
            facts.keep(local.id, own | reasons)
        else:
            facts.naturals -= {local.id}
        self.valued.add(local.id)

    # ---- asm ---------------------------------------------------------------------------------------------------------

    def _asm(self, asm: Asm) -> None:
        place = self.place(asm.span)
        instruction, exprs, axes = self.instruction(asm)
        if instruction.result is None:
            self.emit(OPS[instruction.op](*exprs, span=place))
            return
        target = (*asm.outputs, *asm.inputs)[instruction.result].value
        old = self.as_scalar(self.place_of(target), target.span)
        self.write(target, old, Scalar(Call(instruction.op, exprs, span=place), old.dtype, axes), place)

    def instruction(self, asm: Asm) -> tuple[Instruction, tuple[Expr, ...], frozenset[Axis]]:
        """What an asm is, with its operands and the axes that they vary over."""
        place = self.place(asm.span)
        instruction = INSTRUCTIONS.get(normal_ptx(asm.template))
        if instruction is None:
            raise refusal(f"the instruction `{asm.template}` is not in the vocabulary", place)
        if instruction.volatile and not asm.volatile:
            raise refusal("this asm orders other code, but is not volatile: the compiler may drop or move it", place)
        if instruction.memory and "memory" not in asm.clobbers:
            raise refusal(
                'this asm orders memory, but does not clobber "memory": the compiler may move accesses over it', place
            )
        operands = (*asm.outputs, *asm.inputs)
        if any(n >= len(operands) for n in instruction.operands):
            raise refusal("this asm has too few operands", place)
        values = [self._operand(operands[n].value) for n in instruction.operands]
        if instruction.op in OPS and field_names(OPS[instruction.op])[:1] == ("barrier",):
            self._check_barrier(values[0], place)
        axes = frozenset[Axis]().union(*(v.axes for v in values if isinstance(v, Scalar)))
        return instruction, tuple(self.as_expr(v, asm.span) for v in values), axes

    def _check_barrier(self, value: Value, place: Span) -> None:
        lemma = self.context.type_lemma(value.type) if isinstance(value, Opaque) and not value.type.dims else None
        if lemma is None or lemma.means != "barrier":
            raise refusal(f"{describe(value)} in place of a barrier", place)

    def _operand(self, operand: CExpr) -> Value:
        value = self.value(operand)
        return value.of if isinstance(value, Address) else value
