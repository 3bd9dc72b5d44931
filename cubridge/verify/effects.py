"""What a statement of a kernel body reads, writes and orders: when two statements may trade places.

Two statements commute where neither writes what the other touches and neither orders what the other does. Waits acquire, arrivals
release; two waits commute, and so do two arrivals, but neither passes the other, nor an access to shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from cubridge.ir.families import named_arguments
from cubridge.ir.nodes import (
    TILE_ARGUMENTS,
    Assign,
    Attr,
    Break,
    Call,
    CopyAsync,
    Expr,
    For,
    Gemm,
    If,
    Index,
    Loop,
    Name,
    Node,
    Op,
    RegionCall,
    RegisterTile,
    Stmt,
)
from cubridge.ir.operands import whole, written_operands
from cubridge.ir.operations import Order
from cubridge.ir.region_types import written_arguments
from cubridge.ir.walk import blocks, children, walk

_REGISTERS: Final = frozenset({*TILE_ARGUMENTS, "dp", "ds", "delta", "row", "kept", "tile"})
"""What regions of a kernel body write."""

_CLASHES: Final = ((Order.MEMORY, Order.ACQUIRE), (Order.MEMORY, Order.RELEASE), (Order.ACQUIRE, Order.RELEASE))


@dataclass(frozen=True, slots=True)
class Effects:
    """Resources by name: locals and register tiles `x`, shared objects `smem.x`, parameters `p.x`, and what operations share."""

    reads: frozenset[str]
    writes: frozenset[str]
    order: Order

    def __or__(self, other: Effects) -> Effects:
        return Effects(self.reads | other.reads, self.writes | other.writes, self.order | other.order)


NOTHING: Final = Effects(frozenset(), frozenset(), Order.NONE)


def commute(a: Effects, b: Effects) -> bool:
    """May two neighbours trade places."""
    if (a.order | b.order) & Order.CONTROL:
        return False
    if a.writes & (b.reads | b.writes) or b.writes & a.reads:
        return False
    return not any((x in a.order and y in b.order) or (y in a.order and x in b.order) for x, y in _CLASHES)


def effects(stmt: Stmt) -> Effects:
    match stmt:
        case Assign(target, value):
            return _of(reads=_read(value), writes=_target(target), nodes=(target, value))
        case If() | For() | Loop():
            return around(stmt, joined(effects(inner) for _, body in blocks(stmt) for inner in body))
        case Break():
            return _of(order=Order.CONTROL)
        case RegisterTile(name, _, rows, cols):
            return _of(reads=(*_read(rows), *(_read(cols) if cols else ())), writes=(name,))
        case Gemm():
            return _gemm(stmt)
        case RegionCall(region, args):
            written = written_arguments(region) & _REGISTERS
            named = named_arguments(region, args).items()
            reads = (*(n for a in args for n in _read(a)), "registers")
            return _of(reads=reads, writes=(_base(arg) for name, arg in named if name in written))
        case Op():
            return _operation(stmt)
        case _:
            assert_never(stmt)  # pyright: ignore[reportArgumentType]


def around(stmt: If | For | Loop, inner: Effects) -> Effects:
    """The effects of a statement with blocks, from those of all that is in its blocks."""
    match stmt:
        case If(condition):
            return _of(reads=_read(condition)) | inner
        case For(var, start, stop):
            own = _of(reads=(*_read(start), *_read(stop)))
            return own | Effects(inner.reads - {var}, inner.writes, inner.order)
        case Loop():  # a break inside ends this loop, not the block around it
            return Effects(inner.reads, inner.writes, inner.order & ~Order.CONTROL)


def joined(parts: Iterable[Effects]) -> Effects:
    """Of statements that run one after the other."""
    result = NOTHING
    for part in parts:
        result |= part
    return result


def _gemm(stmt: Gemm) -> Effects:
    operands = (*_read(stmt.a), *_read(stmt.b), *(_read(stmt.dst) if stmt.accumulate else _indices(stmt.dst)))
    shared = ("wgmma",) if stmt.asynchronous else ()
    return _of(reads=operands, writes=(_base(stmt.dst), *shared), order=Order.MEMORY)


def _operation(stmt: Op) -> Effects:
    row = stmt.effect
    read = [n for child in children(stmt) for n in _read(child)]
    written = [_base(x) for x in written_operands(stmt)]
    in_group = not isinstance(stmt, CopyAsync) or stmt.signal is None
    return _of(reads=(*read, *(row.needs if in_group else ())), writes=(*written, *row.changes), order=row.order)


def _of(
    reads: Iterable[str] = (), writes: Iterable[str] = (), order: Order = Order.NONE, nodes: Iterable[Node] = ()
) -> Effects:
    """Effects; `nodes` are expressions whose shared scalars and counters count as accesses."""
    read, written = set(reads), set(writes)
    for node in (n for root in nodes for n in walk(root)):
        match node:
            case Attr(Name("smem")):
                order |= Order.MEMORY
            case Call("atomic_add", (counters, *_)):
                written.add(_base(counters))
            case Call("work_tile" | "tile_at"):
                read.add("work in turn")
                written.add("work in turn")
            case _:
                pass
    return Effects(frozenset(read), frozenset(written), order)


def _read(node: Node) -> tuple[str, ...]:
    """The resources that an expression names."""
    match node:
        case Attr(Name("p" | "smem" as scope), name):
            return (f"{scope}.{name}",)
        case Name(name):
            return (name,)
        case _:
            return tuple(n for child in children(node) for n in _read(child))


def _indices(expr: Expr) -> tuple[str, ...]:
    return tuple(n for x in expr.indices for n in _read(x)) if isinstance(expr, Index) else ()


def _base(expr: Expr) -> str:
    """The resource that an operand is a part of."""
    expr = whole(expr)
    return _read(expr.base if isinstance(expr, Index) else expr)[0]


def _target(target: Expr) -> tuple[str, ...]:
    match target:
        case Attr(Name("row" | "tile" as scope), name):
            return scope, f"{scope}.{name}"
        case _:
            return (_base(target),)
