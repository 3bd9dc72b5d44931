"""What statements write and expressions read: what putting a body in place of its call must respect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cubridge.frontend.cuda.values import Address, Opaque, Value, View
from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.families import named_arguments
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    Gemm,
    Index,
    Name,
    Op,
    RegionCall,
    Stmt,
)
from cubridge.ir.operands import whole, written_operands
from cubridge.ir.region_types import written_arguments
from cubridge.ir.source import Span
from cubridge.ir.walk import blocks, children, walk

_MAX_NOTES = 3
OWN_ROW: Final = "takes a row in FILE.lemmas.toml, see docs/kernels.md"


def written(statements: Iterable[Stmt]) -> frozenset[Expr]:
    """The locals, fields and rings that statements change."""
    return frozenset(_written(statements))


def _written(statements: Iterable[Stmt]) -> Iterator[Expr]:
    for statement in statements:
        match statement:
            case Assign(target):
                yield root(target)
            case Gemm(dst=dst):
                yield root(dst)
            case Op():
                yield from map(root, written_operands(statement))
            case RegionCall(region, args):
                writes = written_arguments(region)
                yield from (root(a) for name, a in named_arguments(region, args).items() if name in writes)
            case _:
                for _, body in blocks(statement):
                    yield from _written(body)


def root(expr: Expr) -> Expr:
    """The local or field that a place is part of."""
    expr = whole(expr)
    match expr:
        case Index(base, _):
            return root(base)
        case Attr(Name("p" | "smem" | "tile" | "row" | "kept" | "keys" | "queries"), _):
            return expr
        case Attr(base, _):
            return root(base)
        case _:
            return expr


def reads(expr: Expr, touched: frozenset[Expr]) -> bool:
    """Does an expression read any of these?"""
    if not touched:
        return False
    if expr in touched or (isinstance(expr, Attr) and root(expr) in touched):
        return True
    return any(reads(c, touched) for c in children(expr) if isinstance(c, Expr))


def roots(expr: Expr) -> frozenset[Expr]:
    """The locals and fields that an expression reads."""
    return frozenset(root(node) for node in walk(expr) if isinstance(node, Name | Attr))


def moves(value: Value, touched: frozenset[Expr]) -> bool:
    """Does a name for an object now stand for another one, because what subscripts it was written?"""
    match value:
        case Opaque(made) | View(made):
            return any(reads(x, touched) for x in _subscripts(made))
        case Address(of):
            return moves(of, touched)
        case _:
            return False


def _subscripts(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Index(base, indices):
            yield from indices
            yield from _subscripts(base)
        case Attr(base, _):
            yield from _subscripts(base)
        case _:
            pass


def has_effect(expr: Expr) -> bool:
    """Does computing it change memory?"""
    return any(isinstance(node, Call) and node.fn == "atomic_add" for node in walk(expr))


def collapsed(name: str, place: Span, faults: Sequence[Diagnostic]) -> Diagnostic:
    """One fault for a call of a helper that has several inside."""
    notes = tuple(Note(f.message, f.span) for f in faults[:_MAX_NOTES] if f.span != place)
    reason = faults[0].message
    return Diagnostic(
        faults[0].code, f"`{name}` has no CuIR meaning: {reason}", place, notes or faults[0].notes,
        faults[0].help or f"a helper that lifting cannot read {OWN_ROW}",
    )  # fmt: skip
