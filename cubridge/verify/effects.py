"""What a statement of a kernel body reads, writes and orders: when two statements may trade places.

Two statements commute where neither writes what the other touches and neither orders what the other does. Waits acquire, arrivals
release; two waits commute, and so do two arrivals, but neither passes the other, nor an access to shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

from cubridge.ir.nodes import (
    Assign,
    Attr,
    BarrierArrive,
    BarrierExpect,
    BarrierInit,
    BarrierInitFence,
    BarrierWait,
    BlockSync,
    Break,
    Call,
    Cast,
    Commit,
    CopyAsync,
    Expr,
    FinishCounters,
    For,
    Gemm,
    If,
    Index,
    Loop,
    Name,
    NamedArrive,
    NamedSync,
    Node,
    RegionCall,
    RegistersRelease,
    RegistersTake,
    RegisterTile,
    RingNext,
    Stmt,
    Store,
    WaitGroup,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    Zero,
)  # fmt: skip
from cubridge.ir.walk import children, walk


class Order(Flag):
    """How a statement takes part in order between threads."""

    NONE = 0
    MEMORY = auto()  # touches shared memory
    ACQUIRE = auto()
    RELEASE = auto()
    CONTROL = auto()  # leaves a block


_CLASHES: Final = ((Order.MEMORY, Order.ACQUIRE), (Order.MEMORY, Order.RELEASE), (Order.ACQUIRE, Order.RELEASE))

REGION_WRITES: Final[dict[str, tuple[int, ...]]] = {
    "score": (0,), "mask": (0,), "row_init": (0,), "row_update": (1,), "row_probs": (0, 1), "row_rescale": (0,),
    "row_finalize": (0, 1),
}  # fmt: skip
"""Positions of the arguments that a region may write."""


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
        case If(_, then, orelse):
            return around(stmt, all_effects((*then, *orelse)))
        case For(_, _, _, body) | Loop(body):
            return around(stmt, all_effects(body))
        case Break():
            return _of(order=Order.CONTROL)
        case RegisterTile(name, _, rows, cols):
            return _of(reads=(*_read(rows), *(_read(cols) if cols else ())), writes=(name,))
        case Gemm():
            return _gemm(stmt)
        case RegionCall(region, args):
            written = [_base(args[x]) for x in REGION_WRITES.get(region, ())]
            return _of(reads=(*(n for a in args for n in _read(a)), "registers"), writes=written)
        case _:
            return _operation(stmt)


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


def all_effects(body: Iterable[Stmt]) -> Effects:
    """Of statements that run one after the other."""
    return joined(effects(stmt) for stmt in body)


def joined(parts: Iterable[Effects]) -> Effects:
    result = NOTHING
    for part in parts:
        result |= part
    return result


def _gemm(stmt: Gemm) -> Effects:
    operands = (*_read(stmt.a), *_read(stmt.b), *(_read(stmt.dst) if stmt.accumulate else _indices(stmt.dst)))
    shared = ("wgmma",) if stmt.asynchronous else ()
    return _of(reads=operands, writes=(_base(stmt.dst), *shared), order=Order.MEMORY)


def _operation(stmt: Stmt) -> Effects:
    reads = [n for child in children(stmt) for n in _read(child)]
    match stmt:
        case Zero(dst) | Cast(dst, _):
            return _of(reads=(*reads, "registers"), writes=(_base(dst),))
        case CopyAsync(dst, _, _, signal):
            joins = ("copies",) if signal is None else ()
            signals = () if signal is None else (_base(signal),)
            return _of(reads=(*reads, *joins), writes=(_base(dst), *signals), order=Order.MEMORY)
        case Store(dst):
            return _of(reads=(*reads, "registers"), writes=(_base(dst),))
        case Commit():
            return _of(writes=("copies",))
        case WaitGroup():
            return _of(reads=reads, writes=("copies",), order=Order.ACQUIRE)
        case BarrierInit(barrier, _):
            return _of(reads=(*reads, "initialisation"), writes=(_base(barrier),), order=Order.MEMORY)
        case BarrierInitFence():
            return _of(writes=("initialisation",), order=Order.MEMORY)
        case BarrierExpect(barrier) | BarrierArrive(barrier):
            return _of(reads=reads, writes=(_base(barrier),), order=Order.RELEASE)
        case BarrierWait():
            return _of(reads=reads, order=Order.ACQUIRE)
        case BlockSync() | NamedSync():
            return _of(reads=reads, order=Order.ACQUIRE | Order.RELEASE)
        case NamedArrive():
            return _of(reads=reads, order=Order.RELEASE)
        case WgmmaFence():
            return _of(writes=("registers", "wgmma"))
        case WgmmaCommit():
            return _of(writes=("wgmma",))
        case WgmmaWait():
            return _of(reads=reads, writes=("registers", "wgmma"), order=Order.ACQUIRE)
        case RingNext(ring):
            return _of(reads=reads, writes=(_base(ring),))
        case RegistersRelease() | RegistersTake():
            return _of(writes=("register budget",))
        case FinishCounters(counters):
            return _of(writes=(_base(counters),))
        case _:
            return _of(reads=reads, order=Order.CONTROL)


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
            case Call("work_tile"):
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
    return _read(expr.base if isinstance(expr, Index) else expr)[0]


def _target(target: Expr) -> tuple[str, ...]:
    match target:
        case Attr(Name("row" | "tile" as scope), name):
            return (f"{scope}.{name}",)
        case _:
            return (_base(target),)
