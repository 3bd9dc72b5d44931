"""Functions of the text in place of their calls: a function means what its body means with the arguments put in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from cubridge.frontend.cuda.context import Context
from cubridge.frontend.cuda.inlining import collapsed, has_effect, reads, written
from cubridge.frontend.cuda.numbers import binary, convert
from cubridge.frontend.cuda.signs import Signs
from cubridge.frontend.cuda.statements import Statements
from cubridge.frontend.cuda.structure import FunctionText
from cubridge.frontend.cuda.syntax import (
    Asm,
    Assignment,
    Block,
    CallOf,
    CStmt,
    CType,
    Declare,
    Evaluate,
    Ident,
    IfElse,
    Return,
    assigned_names,
)
from cubridge.frontend.cuda.values import (
    SCALAR_TYPES,
    Failed,
    Names,
    Opaque,
    Poisoned,
    Reference,
    Scalar,
    Value,
    View,
    refusal,
)
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Attr, Call, Name
from cubridge.ir.walk import walk

MAX_INLINING: Final = 20
MAX_VALUE: Final = 1000
"""Nodes of what a call stands for."""


class _Effect(Exception):
    """A value function that does more than compute: its locals must be locals of CuIR, for the sake of order."""


class Bodies(Statements):
    """Lifts calls of functions that are neither regions nor tested helpers."""

    def __init__(self, context: Context, facts: Signs) -> None:
        super().__init__(context, facts)
        self.depth = 0

    def inline(self, function: FunctionText, call: CallOf, args: Sequence[Value]) -> Value | None:
        place = self.place(call.span)
        if self.depth >= MAX_INLINING:
            raise refusal(f"`{call.fn}` calls itself, or too deep", place)
        outer = (self.names, self.site, self.depth, self.out, self.faults, self.exits)
        inside = function.file is self.context.program.file
        self.site = self.site if inside or self.site is not None else call.span
        self.depth += 1
        try:
            result = self._inlined(function, call, args)
        finally:
            made, faults = self.out, self.faults
            self.names, self.site, self.depth, self.out, self.faults, self.exits = outer
        if faults:
            if inside:
                self.faults += faults
                raise Poisoned
            raise CuError(collapsed(call.fn, place, faults))
        for statement in made:
            self.emit(statement)
        if isinstance(result, Scalar) and sum(1 for _ in islice(walk(result.expr), MAX_VALUE)) == MAX_VALUE:
            raise refusal(f"the value of `{call.fn}` is too long, with bodies in place of calls", place)
        return result

    def _inlined(self, function: FunctionText, call: CallOf, args: Sequence[Value]) -> Value | None:
        """The body with its arguments put in; once more with numbers in locals if it writes what they read."""
        body = function.body()
        around = self.names
        assigned = assigned_names(body)
        for in_locals in (False, True):
            self.names, self.out, self.faults, self.exits = Names(around=around), [], [], frozenset((Return,))
            self._bind(function, call, args, in_locals, assigned)
            value = self._body_value(function, body)
            touched = written(self.out)
            if in_locals or not any(isinstance(a, Scalar) and reads(a.expr, touched) for a in args):
                break
        return value

    def _bind(
        self, function: FunctionText, call: CallOf, args: Sequence[Value], in_locals: bool, assigned: frozenset[str]
    ) -> None:
        callee = self.names
        for parameter, argument in zip(function.template_params, call.template_args, strict=False):
            self.names = callee.around or callee
            value = self.value(argument)
            self.names = callee
            callee.values[parameter.name] = value
        for parameter, value in zip(function.params, args, strict=True):
            kind, place = self.resolve(parameter.type), self.place(parameter.span)
            by_place = kind.reference and not (isinstance(value, Scalar) and not isinstance(value.expr, Name | Attr))
            if isinstance(value, Scalar) and not by_place and not kind.pointers:
                value = convert(value, self.dtype(kind, parameter.span), place)
                if in_locals or parameter.name in assigned or has_effect(value.expr):
                    value = self.local(parameter.name, value, place)
            elif isinstance(value, Opaque | View):
                value = Reference(value)
            if kind.reference or kind.dims:
                callee.by_place.add(parameter.name)
            callee.values[parameter.name] = value

    # ---- values ------------------------------------------------------------------------------------------------------

    def _body_value(self, function: FunctionText, body: Block) -> Value | None:
        if function.result.name == "void" and not function.result.pointers:
            self.run(body.body)
            return None
        *most, last = body.body or (Block(()),)
        if not isinstance(last, Return) or any(isinstance(s, IfElse) for s in most):
            return self.chosen(body.body, function.result)
        values, names = dict(self.names.values), set(self.names.taken)
        try:
            for statement in most:
                self._put_in(statement)
            return self._returned(last, function.result)
        except _Effect:
            self.names.values, self.names.taken, self.out, self.faults = values, names, [], []
            self.run(most)
            return self._returned(last, function.result)

    def _returned(self, last: Return, kind: CType) -> Value | None:
        try:
            if last.value is None:
                raise refusal("no value is returned", self.place(last.span))
            value = self.value(last.value)
            dtype = SCALAR_TYPES.get(self.resolve(kind).name)
            if dtype is None or kind.pointers or kind.reference:
                return value
            return convert(self.as_scalar(value, last.span), dtype, self.place(last.span))
        except CuError as error:
            self.faults += error.diagnostics
        except Poisoned:
            pass
        return None

    def _put_in(self, statement: CStmt) -> None:
        """Give a local of a value function its value, to be put in where it is read. Raises _Effect for what is no such local."""
        try:
            self._put_in_value(statement)
        except CuError as error:
            self.faults += error.diagnostics
        except Poisoned:
            pass
        if self.out:
            raise _Effect

    def _put_in_value(self, statement: CStmt) -> None:
        values = self.names.values
        place = self.place(statement.span)
        match statement:
            case Declare(type=kind, name=name, value=None) if self._is_scalar(kind):
                values[name] = Scalar(Name(name), SCALAR_TYPES[self.resolve(kind).name])
            case Declare(type=kind, name=name, value=value) if value is not None and self._is_scalar(kind):
                values[name] = Failed()
                values[name] = self._pure(convert(self.scalar(value), SCALAR_TYPES[self.resolve(kind).name], place))
            case Evaluate(Assignment(Ident(name), op, value)) if name not in self.names.by_place:
                old = values.get(name)
                if not isinstance(old, Scalar):
                    raise _Effect
                new = self.scalar(value)
                new = new if op == "=" else binary(op[:-1], old, new, place, self.facts)
                values[name] = self._pure(convert(new, old.dtype, place))
            case Asm(outputs=(output,)) if isinstance(output.value, Ident):
                instruction, exprs, axes = self.instruction(statement)
                old = values.get(output.value.name)
                if not isinstance(old, Scalar) or instruction.result is None:
                    raise _Effect
                values[output.value.name] = Scalar(Call(instruction.op, exprs, span=place), old.dtype, axes)
            case _:
                raise _Effect

    def _is_scalar(self, kind: CType) -> bool:
        kind = self.resolve(kind)
        return kind.name in SCALAR_TYPES and not kind.dims and not kind.pointers and not kind.reference

    def _pure(self, value: Scalar) -> Scalar:
        if has_effect(value.expr):
            raise _Effect
        return value

    def chosen(self, statements: Sequence[CStmt], kind: CType) -> Value | None:
        """The value of a body that returns on several ways, as a selection; such a body may only compute."""
        for at, statement in enumerate(statements):
            match statement:
                case Return():
                    return self._returned(statement, kind)
                case IfElse(condition, then, orelse):
                    rest = statements[at + 1 :] if orelse is None else (orelse, *statements[at + 1 :])
                    return self._chosen_of(statement, self.condition(condition), (then,), rest, kind)
                case _:
                    try:
                        self._put_in(statement)
                    except _Effect:
                        message = "a function that returns on several ways may only compute"
                        raise refusal(message, self.place(statement.span)) from None
        place = self.place(statements[-1].span) if statements else self.site or self.context.kernel.span
        raise refusal("this function does not return a value on every way", place)

    def _chosen_of(
        self, branch: IfElse, condition: Scalar, then: Sequence[CStmt], rest: Sequence[CStmt], kind: CType
    ) -> Value | None:
        parts: list[Value | None] = []
        values = dict(self.names.values)
        for way in (then, rest):
            parts.append(self.chosen(_flat(way), kind))
            self.names.values = dict(values)
        match parts:
            case [Scalar() as a, Scalar() as b]:
                return self.select(condition, a, b, self.place(branch.span))
            case _ if self.faults:
                return None
            case _:
                raise refusal("this selection is not between numbers", self.place(branch.span))


def _flat(statements: Sequence[CStmt]) -> list[CStmt]:
    found: list[CStmt] = []
    for statement in statements:
        found += _flat(statement.body) if isinstance(statement, Block) else [statement]
    return found
