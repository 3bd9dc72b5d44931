"""Plausible faults of a kernel, made by rule: what a judge must tell from the kernel itself.

Every statement is deleted, duplicated and swapped with its neighbour; every slot, phase, count, byte number, tile index and operand
is changed. What is no change by construction is marked: neighbours that commute, a wait that follows itself. All others are judged
by the static verifier, the order engine and the value engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cubridge.ir.nodes import (
    Assign,
    AsyncProxyFence,
    Attr,
    Barrier,
    BarrierExpect,
    BarrierInitFence,
    BarrierWait,
    Binary,
    BlockSync,
    Break,
    BulkWaitRead,
    Call,
    Copy,
    CopyAsync,
    CpAsyncWait,
    DotRows,
    Expr,
    For,
    Gemm,
    Global,
    If,
    Index,
    IntLit,
    Kernel,
    Load,
    Loop,
    Name,
    NamedArrive,
    NamedSync,
    Op,
    ReadShared,
    RegionCall,
    RegisterTile,
    Stmt,
    Store,
    StoreAsync,
    TensorMap,
    Tile,
    WgmmaFence,
    WgmmaWait,
)  # fmt: skip
from cubridge.ir.paths import Path, get, paths, put
from cubridge.ir.source import Span
from cubridge.ir.walk import blocks, children, field_names, walk
from cubridge.verify.effects import commute, effects
from cubridge.verify.events import head


@dataclass(frozen=True, slots=True)
class Fault:
    """`kernel` is the source with `operator` applied at `path`; `span` is the place in the source that a judge should name.

    no_change: why this is the source said otherwise, by construction; None if it is not."""

    operator: str
    path: Path
    span: Span
    what: str
    kernel: Kernel
    no_change: str | None = None

    def __str__(self) -> str:
        return f"{self.operator}: {self.what}"


def enumerate_faults(kernel: Kernel) -> Iterator[Fault]:
    """All faults of a kernel, in the order of the text, each once for its statement; those that are no change are marked so."""
    for block, body in _blocks(kernel):
        for x, stmt in enumerate(body):
            seen: list[Kernel] = [kernel]
            for fault in _at_statement(kernel, block, body, x, stmt):
                if fault.kernel not in seen:
                    seen.append(fault.kernel)
                    yield fault


# ---- places ----------------------------------------------------------------------------------------------------------


def _blocks(kernel: Kernel) -> Iterator[tuple[Path, tuple[Stmt, ...]]]:
    for function in (*kernel.regions, kernel.schedule):
        root = Path(("regions", function.name)) if function is not kernel.schedule else Path(("schedule",))
        yield from _inner(root / "body", function.body)
    yield from _inner(Path(("body",)), kernel.body)


def _inner(path: Path, body: tuple[Stmt, ...]) -> Iterator[tuple[Path, tuple[Stmt, ...]]]:
    yield path, body
    for x, stmt in enumerate(body):
        for name, inner in blocks(stmt):
            yield from _inner(path / x / name, inner)


def _with_block(kernel: Kernel, block: Path, body: tuple[Stmt, ...]) -> Kernel:
    parent = get(kernel, block.parent)
    changed = put(kernel, block.parent, replace(parent, **{str(block.steps[-1]): body}))
    assert isinstance(changed, Kernel)
    return changed


# ---- statements ------------------------------------------------------------------------------------------------------


def _at_statement(kernel: Kernel, block: Path, body: tuple[Stmt, ...], x: int, stmt: Stmt) -> Iterator[Fault]:
    before, after = body[:x], body[x + 1 :]
    path, text = block / x, head(stmt)

    def fault(operator: str, changed: tuple[Stmt, ...], what: str = text, no_change: str | None = None) -> Fault:
        return Fault(operator, path, stmt.span, what, _with_block(kernel, block, changed), no_change)

    yield fault("delete", before + after)
    if not isinstance(stmt, If | For | Loop | Break):
        yield fault("duplicate", (*before, stmt, stmt, *after), no_change=_said_twice(stmt))
    if after:
        reason = "neighbours that commute" if commute(effects(stmt), effects(after[0])) else None
        yield fault("swap with next", (*before, after[0], stmt, *after[1:]), f"{text}  <->  {head(after[0])}", reason)
    for operator, changed in _changed(kernel, stmt):
        yield fault(operator, (*before, changed, *after), head(changed), _same_number(kernel, stmt, changed))


def _said_twice(stmt: Stmt) -> str | None:
    """Why a statement that follows itself adds nothing, if it does not."""
    match stmt:
        case (
            CpAsyncWait()
            | WgmmaWait()
            | WgmmaFence()
            | BlockSync()
            | BarrierInitFence()
            | AsyncProxyFence()
            | BulkWaitRead()
        ):
            return "a wait or fence that follows itself"
        case Assign() | RegisterTile() | Load() | DotRows() | ReadShared() if not _reads_what_it_writes(stmt):
            return "an assignment that does not read what it writes"
        case _:
            return None


def _reads_what_it_writes(stmt: Stmt) -> bool:
    """Of an operation on registers, does it read the tile that it overwrites."""
    if isinstance(stmt, Load | DotRows | ReadShared):
        return any(stmt.dst == node for source in (*children(stmt),)[1:] for node in walk(source))
    return bool(effects(stmt).writes & effects(stmt).reads)


def _same_number(kernel: Kernel, stmt: Stmt, changed: Stmt) -> str | None:
    """Why a change of a byte count gives the same count, if it does."""
    match stmt, changed:
        case BarrierExpect(_, Call("bytes", (Attr(_, a),))), BarrierExpect(_, Call("bytes", (Attr(_, b),))) if a != b:
            types = {f.name: f.type for f in kernel.shared}
            return "tiles of the same size" if types[a] == types[b] else None
        case _:
            return None


# ---- expressions -----------------------------------------------------------------------------------------------------


def _changed(kernel: Kernel, stmt: Stmt) -> Iterator[tuple[str, Stmt]]:
    """The statement with one of its own expressions changed; blocks inside of it are other statements' places."""
    for make in _OPERATORS:
        yield from make(kernel, stmt)


def _own_expressions(stmt: Stmt) -> Iterator[tuple[Path, Expr]]:
    for path, node in paths(stmt):
        if isinstance(node, Expr) and not any(s in ("then", "orelse", "body") for s in path.steps[:1]):
            yield path, node


def _put(stmt: Stmt, path: Path, expr: Expr) -> Stmt:
    changed = put(stmt, path, expr)
    assert isinstance(changed, Stmt)
    return changed


def _plus(expr: Expr, number: int) -> Expr:
    if isinstance(expr, IntLit):
        return replace(expr, value=expr.value + number)
    op = "+" if number > 0 else "-"
    return Binary(op, expr, IntLit(abs(number)), span=expr.span)


def _slots(kernel: Kernel, stmt: Stmt) -> Iterator[tuple[str, Stmt]]:
    for path, node in _own_expressions(stmt):
        match node:
            case Index(Attr(Name("smem"), name), (slot,)):
                slots = next((getattr(f.type, "slots", None) for f in kernel.shared if f.name == name), None)
                if slots is not None:
                    moved = Binary("%", _plus(slot, 1), slots, span=slot.span)
                    yield "slot + 1", _put(stmt, path, replace(node, indices=(moved,)))
            case _:
                pass


def _phases(kernel: Kernel, stmt: Stmt) -> Iterator[tuple[str, Stmt]]:
    if isinstance(stmt, BarrierWait):
        match stmt.phase:
            case Binary("^", phase, IntLit(1)):
                yield "phase flipped", replace(stmt, phase=phase)
            case phase:
                yield "phase flipped", replace(stmt, phase=Binary("^", phase, IntLit(1), span=phase.span))


_COUNTS: Final = {"pending": 1, "arrivals": 1, "threads": 32, "count": 8}
"""Fields of operations that are counts, with their smallest steps."""


def _counts(kernel: Kernel, stmt: Stmt) -> Iterator[tuple[str, Stmt]]:
    fields = [(name, _COUNTS[name]) for name in field_names(type(stmt)) if isinstance(stmt, Op) and name in _COUNTS]
    fields += [("start", 1), ("stop", 1)] if isinstance(stmt, For) else []
    for name, step in fields:
        old = getattr(stmt, name)
        yield "count + 1", replace(stmt, **{name: _plus(old, step)})
        yield "count - 1", replace(stmt, **{name: _plus(old, -step)})
    for path, node in _own_expressions(stmt):
        match node:
            case Call("Ring", (size,)):
                yield "count + 1", _put(stmt, path, replace(node, args=(_plus(size, 1),)))
                yield "count - 1", _put(stmt, path, replace(node, args=(_plus(size, -1),)))
            case Call("atomic_add", (counters, at, amount)):
                yield "count + 1", _put(stmt, path, replace(node, args=(counters, at, _plus(amount, 1))))
                yield "slot + 1", _put(stmt, path, replace(node, args=(counters, _plus(at, 1), amount)))
            case _:
                pass


def _bytes(kernel: Kernel, stmt: Stmt) -> Iterator[tuple[str, Stmt]]:
    if isinstance(stmt, BarrierExpect):
        yield "bytes halved", replace(stmt, bytes=Binary("//", stmt.bytes, IntLit(2), span=stmt.bytes.span))


def _tiles(kernel: Kernel, stmt: Stmt) -> Iterator[tuple[str, Stmt]]:
    """Key tiles, steps and rows one too far or too near; fragment rows; numbers of named barriers."""
    for path, node in _own_expressions(stmt):
        match node:
            case Call("key_tile" | "key_masked" | "query_tile" | "query_masked", (keys, t)):
                yield "tile + 1", _put(stmt, path, replace(node, args=(keys, _plus(t, 1))))
                yield "tile - 1", _put(stmt, path, replace(node, args=(keys, _plus(t, -1))))
            case Call("key_count" | "query_count"):
                yield "tile + 1", _put(stmt, path, _plus(node, 1))
                yield "tile - 1", _put(stmt, path, _plus(node, -1))
            case _:
                pass
    match stmt:
        case CopyAsync() | Copy() | Store() | StoreAsync():
            yield "tile + 1", replace(stmt, row=_plus(stmt.row, 64))
            yield "tile - 1", replace(stmt, row=_plus(stmt.row, -64))
        case RegionCall(_, args) if len(args) > 2:
            for x in range(len(args)):
                if isinstance(args[x], IntLit | Binary):
                    yield "tile + 1", replace(stmt, args=(*args[:x], _plus(args[x], 1), *args[x + 1 :]))
        case NamedSync() | NamedArrive():
            yield "slot + 1", replace(stmt, id=_plus(stmt.id, 1))
        case Assign(Attr(Name("tile"), _), value) | Assign(Name(), Binary() as value):
            yield "index + 1", replace(stmt, value=_plus(value, 1))
            yield "index - 1", replace(stmt, value=_plus(value, -1))
        case _:
            pass


def _operands(kernel: Kernel, stmt: Stmt) -> Iterator[tuple[str, Stmt]]:
    if isinstance(stmt, Gemm):
        yield "operand swapped", replace(stmt, a=stmt.b, b=stmt.a)
        yield "operand swapped", replace(stmt, transposed=not stmt.transposed)
        if stmt.a_transposed:
            yield "operand swapped", replace(stmt, a_transposed=False)
        yield "operand swapped", replace(stmt, accumulate=not stmt.accumulate)
    for path, node in _own_expressions(stmt):
        match node:
            case Attr(Name("smem" | "p" as scope), name):
                for other in _alike(kernel, scope, name):
                    yield "operand swapped", _put(stmt, path, replace(node, name=other))
            case Index(Attr(Name("p")), (first, second)):
                yield "operand swapped", _put(stmt, path, replace(node, indices=(second, first)))
            case Attr(Name("tile"), "h" | "hk" as name):
                yield "operand swapped", _put(stmt, path, replace(node, name="hk" if name == "h" else "h"))
            case _:
                pass


def _alike(kernel: Kernel, scope: str, name: str) -> Iterator[str]:
    """Other fields that could stand where this one does: tiles for tiles, barriers for barriers, tensors for tensors."""
    fields = kernel.shared if scope == "smem" else kernel.params
    own = next((f.type for f in fields if f.name == name), None)
    for other in fields:
        if (
            other.name != name
            and type(other.type) is type(own)
            and isinstance(own, Tile | Barrier | TensorMap | Global)
        ):
            yield other.name


def _accessors(kernel: Kernel, stmt: Stmt) -> Iterator[tuple[str, Stmt]]:
    for path, node in _own_expressions(stmt):
        if node in (Name("i"), Name("j")) and isinstance(stmt, Assign):
            yield "index + 1", _put(stmt, path, _plus(node, 1))
            yield "index - 1", _put(stmt, path, _plus(node, -1))


_OPERATORS: Final[tuple[Callable[[Kernel, Stmt], Iterator[tuple[str, Stmt]]], ...]] = (
    _slots, _phases, _counts, _bytes, _tiles, _operands, _accessors,
)  # fmt: skip
