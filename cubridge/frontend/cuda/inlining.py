"""What putting a function's body in place of its call must respect: parameters it assigns, state it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cubridge.frontend.cuda.syntax import Assignment, Block, CStmt, Evaluate, ForLoop, Ident, IfElse, WhileLoop
from cubridge.frontend.cuda.values import Scalar, Value
from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.nodes import (
    REGIONS,
    Assign,
    Attr,
    Cast,
    Expr,
    For,
    Gemm,
    If,
    Index,
    Loop,
    Name,
    RegionCall,
    RingNext,
    Stmt,
    Zero,
)
from cubridge.ir.source import Span
from cubridge.ir.walk import children

_MAX_NOTES = 3


@dataclass(frozen=True, slots=True)
class Inlined:
    """A body that is put in place of a call."""

    body: CStmt

    @property
    def assigned(self) -> frozenset[str]:
        """Names that it assigns after their declaration."""
        return frozenset(_assigned(self.body))


def _assigned(statement: CStmt) -> Iterator[str]:
    match statement:
        case Evaluate(Assignment(Ident(name), _, _)):
            yield name
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


def written(statements: Iterable[Stmt]) -> frozenset[Expr]:
    """The locals, fields and rings that statements change."""
    return frozenset(_written(statements))


def _written(statements: Iterable[Stmt]) -> Iterator[Expr]:
    for statement in statements:
        match statement:
            case Assign(target):
                yield root(target)
            case RingNext(ring):
                yield root(ring)
            case Gemm(dst=dst) | Zero(dst) | Cast(dst=dst):
                yield root(dst)
            case RegionCall(region, args):
                pairs = zip(REGIONS[region], args, strict=False)
                yield from (root(a) for name, a in pairs if name in ("s", "o", "lse", "row") or region == "tile_setup")
            case If(_, then, orelse):
                yield from _written((*then, *orelse))
            case For(body=body) | Loop(body):
                yield from _written(body)
            case _:
                pass


def root(expr: Expr) -> Expr:
    """The local or field that a place is part of."""
    match expr:
        case Index(base, _):
            return root(base)
        case Attr(Name("p" | "smem" | "tile" | "row" | "keys"), _):
            return expr
        case Attr(base, _):
            return root(base)
        case _:
            return expr


def reads(value: Value, touched: frozenset[Expr]) -> bool:
    """Does an argument that was put in read any of these?"""
    if not touched or not isinstance(value, Scalar):
        return False
    return _reads(value.expr, touched)


def _reads(expr: Expr, touched: frozenset[Expr]) -> bool:
    if expr in touched or (isinstance(expr, Attr) and root(expr) in touched):
        return True
    return any(_reads(c, touched) for c in children(expr) if isinstance(c, Expr))


def collapsed(name: str, place: Span, faults: Sequence[Diagnostic]) -> Diagnostic:
    """One fault for a call of a helper that has several inside."""
    notes = tuple(Note(f.message, f.span) for f in faults[:_MAX_NOTES] if f.span != place)
    reason = faults[0].message
    return Diagnostic(
        "CU423", f"`{name}` has no CuIR meaning: {reason}", place, notes or faults[0].notes, faults[0].help
    )
