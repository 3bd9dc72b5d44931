"""Typed syntax of the CUDA that kernels are written in. What it has no class for is `Unknown`, an error where it is reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cubridge.ir.source import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class CNode:
    span: Span = field(default=NOWHERE, kw_only=True, compare=False, repr=False)


# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CExpr(CNode):
    pass


@dataclass(frozen=True, slots=True)
class Ident(CExpr):
    name: str


@dataclass(frozen=True, slots=True)
class Number(CExpr):
    """A literal as written, `8.f` or `0x7f800000`."""

    text: str


@dataclass(frozen=True, slots=True)
class Truth(CExpr):
    value: bool


@dataclass(frozen=True, slots=True)
class Null(CExpr):
    pass


@dataclass(frozen=True, slots=True)
class Member(CExpr):
    base: CExpr
    name: str


@dataclass(frozen=True, slots=True)
class Subscript(CExpr):
    base: CExpr
    index: CExpr


@dataclass(frozen=True, slots=True)
class CallOf(CExpr):
    """`fn<template_args>(args)`, or `receiver.fn(args)`."""

    fn: str
    args: tuple[CExpr, ...]
    template_args: tuple[CExpr, ...] = ()
    receiver: CExpr | None = None


@dataclass(frozen=True, slots=True)
class Prefix(CExpr):
    """`op` of - + ! ~ & *."""

    op: str
    operand: CExpr


@dataclass(frozen=True, slots=True)
class Infix(CExpr):
    op: str
    left: CExpr
    right: CExpr


@dataclass(frozen=True, slots=True)
class Ternary(CExpr):
    condition: CExpr
    then: CExpr
    other: CExpr


@dataclass(frozen=True, slots=True)
class Cast(CExpr):
    type: CType
    operand: CExpr


@dataclass(frozen=True, slots=True)
class Braces(CExpr):
    """`Type{a, b}`, or `{a, b}` beside a declaration that says the type."""

    type: CType | None
    items: tuple[CExpr, ...]


@dataclass(frozen=True, slots=True)
class OfType(CExpr):
    """`Type::name`."""

    type: CType
    name: str


@dataclass(frozen=True, slots=True)
class SizeOf(CExpr):
    type: CType


@dataclass(frozen=True, slots=True)
class Assignment(CExpr):
    """`target op value`, op of = += -= *= ..; `++x` is `x += 1`."""

    target: CExpr
    op: str
    value: CExpr


@dataclass(frozen=True, slots=True)
class Unknown(CExpr):
    """Syntax without a class, by the name the tree has for it."""

    kind: str


# ---- types -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CType(CNode):
    """`const name<args> *& [dims]`; `pointers` counts the stars."""

    name: str
    args: tuple[CExpr, ...] = ()
    const: bool = False
    pointers: int = 0
    reference: bool = False
    dims: tuple[CExpr, ...] = ()

    def __str__(self) -> str:
        return ("const " if self.const else "") + self.name + "*" * self.pointers


# ---- statements ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CStmt(CNode):
    pass


@dataclass(frozen=True, slots=True)
class Declare(CStmt):
    type: CType
    name: str
    value: CExpr | None
    constexpr: bool = False


@dataclass(frozen=True, slots=True)
class Evaluate(CStmt):
    """An expression as a statement."""

    expr: CExpr


@dataclass(frozen=True, slots=True)
class Block(CStmt):
    body: tuple[CStmt, ...]


@dataclass(frozen=True, slots=True)
class IfElse(CStmt):
    condition: CExpr
    then: CStmt
    orelse: CStmt | None


@dataclass(frozen=True, slots=True)
class ForLoop(CStmt):
    init: tuple[CStmt, ...]
    condition: CExpr | None
    step: CExpr | None
    body: CStmt


@dataclass(frozen=True, slots=True)
class WhileLoop(CStmt):
    condition: CExpr
    body: CStmt


@dataclass(frozen=True, slots=True)
class Return(CStmt):
    value: CExpr | None


@dataclass(frozen=True, slots=True)
class BreakLoop(CStmt):
    pass


@dataclass(frozen=True, slots=True)
class ContinueLoop(CStmt):
    pass


@dataclass(frozen=True, slots=True)
class Operand(CNode):
    constraint: str
    value: CExpr


@dataclass(frozen=True, slots=True)
class Asm(CStmt):
    """`template` is the text of the instructions, blanks normalised."""

    template: str
    volatile: bool
    outputs: tuple[Operand, ...]
    inputs: tuple[Operand, ...]
    clobbers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownStmt(CStmt):
    kind: str


# ---- declarations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter(CNode):
    type: CType
    name: str


@dataclass(frozen=True, slots=True)
class FieldOf(CNode):
    """A member of a struct; `value` is its initialiser."""

    type: CType
    name: str
    value: CExpr | None
    static: bool


def assigned_names(statement: CStmt) -> frozenset[str]:
    """Names that a statement assigns, apart from their declaration."""
    return frozenset(_assigned(statement))


def _assigned(statement: CStmt) -> Iterator[str]:
    match statement:
        case Evaluate(Assignment(Ident(name), _, _)):
            yield name
        case Asm(outputs=outputs):
            yield from (o.value.name for o in outputs if isinstance(o.value, Ident))
        case Block(body):
            for part in body:
                yield from _assigned(part)
        case IfElse(_, then, orelse):
            yield from _assigned(then)
            if orelse is not None:
                yield from _assigned(orelse)
        case ForLoop(_, _, step, body):
            if isinstance(step, Assignment) and isinstance(step.target, Ident):
                yield step.target.name
            yield from _assigned(body)
        case WhileLoop(_, body):
            yield from _assigned(body)
        case _:
            pass
