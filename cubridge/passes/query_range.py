"""The query tiles that a key tile must visit, and those that need no mask: `infer-kv-range` in a mirror.

Rows and keys change places, and so do their lengths and tiles: what the forward pass finds of key tiles for a query tile is then
true of query tiles for a key tile. The sequence is checked in the mirror, tile by tile, as the forward's is. Query tiles are walked
from the first, so that key tiles along a diagonal begin at different ones and do not add to the same dq."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cubridge.ir.algebra.exprs import both, either
from cubridge.ir.diagnostics import InternalError
from cubridge.ir.nodes import (
    Argument,
    Assign,
    Attr,
    Binary,
    Call,
    Constant,
    Expr,
    IntLit,
    Kernel,
    Name,
    Node,
    Record,
    Scalar,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.tile_shape import size_of
from cubridge.ir.walk import free_names, rewrite, walk
from cubridge.passes.key_sequence import with_key_sequence
from cubridge.passes.kv_range import visible
from cubridge.passes.mask import IN_RANGE
from cubridge.passes.pieces import full, visited
from cubridge.passes.regions import assign, returned, with_region
from cubridge.passes.rows import RowRange
from cubridge.passes.shape import tile_shape
from cubridge.passes.tile_check import tile_fault

_SIDES: Final = {"i": "j", "j": "i", "Lq": "Lk", "Lk": "Lq"}
_QUERIES: Final = Name("queries")


def with_query_sequence(kernel: Kernel, forward: Kernel, predicate: Expr) -> Kernel:
    """`kernel` that visits the queries which see its keys by `predicate`, in the names of `forward`, and masks a key tile that ends
    past the last key. Where the predicate depends on the query head, or on numbers that the launch makes of lengths, every query
    tile is visited, and masked."""
    if _is_of_one_side(predicate, forward):
        return _with_all(kernel)
    mirror = _mirror(kernel, forward)
    mirrored, inside = (_swapped(p) for p in (predicate, both(predicate, IN_RANGE)))
    rows = RowRange.of(mirror)
    mirror = with_key_sequence(mirror, visited(visible(mirrored, rows), rows), full(visible(inside, rows), rows))
    fault = tile_fault(mirror, mirrored)
    if fault is not None:
        raise InternalError(f"{fault} for the mirrored mask `{print_expr(mirrored)}`")
    return _reflected(kernel, mirror)


def _is_of_one_side(predicate: Expr, forward: Kernel) -> bool:
    hosts = {f.name: f.type.host for f in forward.params if isinstance(f.type, Scalar) and f.type.host is not None}
    for node in walk(predicate):
        match node:
            case Attr(Name("tile"), "h"):
                return True
            case Attr(Name("p"), name) if name in hosts and free_names(hosts[name]) & {"Lq", "Lk"}:
                return True
            case _:
                pass
    return False


def _with_all(kernel: Kernel) -> Kernel:
    sequence = kernel.region("query_sequence").result
    assert isinstance(sequence, Record)
    nothing = {"full_lo": IntLit(0), "full_hi": IntLit(0)}
    fields = tuple(Argument(a.name, nothing.get(a.name, a.value)) for a in sequence.fields)
    return with_region(kernel, "query_sequence", (), replace(sequence, fields=fields))


def _mirror(kernel: Kernel, forward: Kernel) -> Kernel:
    """The forward kernel with a query tile for the backward's key tile, and a key tile for its query tile."""
    ours, theirs = tile_shape(kernel), tile_shape(forward)
    sizes = {theirs.queries: size_of(kernel, ours.keys), theirs.keys: size_of(kernel, ours.queries)}
    constants = (Constant(c.name, sizes.get(Name(c.name), c.value)) for c in forward.constants)
    return replace(forward, constants=tuple(constants))


def _swapped(expr: Expr) -> Expr:
    return rewrite(expr, lambda n: Name(_SIDES[n.id]) if isinstance(n, Name) and n.id in _SIDES else n)


def _reflected(kernel: Kernel, mirror: Kernel) -> Kernel:
    """The walk of the mirror in the backward kernel's names."""
    ours, theirs = tile_shape(kernel), tile_shape(mirror)
    names: dict[Expr, Expr] = {
        theirs.queries: ours.keys,
        theirs.keys: ours.queries,
        Attr(Name("tile"), "q_start"): Attr(Name("tile"), "kv_start"),
    }

    def change(node: Node) -> Node:
        match node:
            case Attr(Name("keys"), name):
                return Attr(_QUERIES, name)
            case Name(name) if name in _SIDES:
                return Name(_SIDES[name])
            case Name() | Attr() if node in names:
                return names[node]
            case _:
                return node

    def reflected(expr: Expr) -> Expr:
        return rewrite(expr, change)

    sequence = mirror.region("key_sequence")
    assert isinstance(sequence.result, Record)
    body = tuple(replace(s, value=reflected(s.value)) for s in sequence.body if isinstance(s, Assign))
    fields = tuple(replace(a, value=reflected(a.value)) for a in sequence.result.fields)
    known = {a.name for a in fields}
    kernel = with_region(kernel, "query_sequence", body, Record("QuerySequence", fields))
    count = returned(mirror.region("key_count"))
    assert count is not None
    kernel = with_region(kernel, "query_count", (), reflected(count))
    tile = _from_the_left(known)
    kernel = with_region(kernel, "query_tile", *tile)
    return with_region(kernel, "query_masked", *_masked(tile, known))


def _of(name: str) -> Attr:
    return Attr(_QUERIES, name)


def _from_the_left(known: set[str]) -> tuple[tuple[Assign, ...], Expr]:
    n = Binary("+", _of("lo"), Name("t"))
    if "gap" not in known:
        return (), n
    left = Name("left")
    in_front = Binary("<", left, Binary("-", _of("gap_hi"), _of("gap")))
    return (assign(left, n),), Call("where", (in_front, left, Binary("+", left, _of("gap"))))


def _masked(tile: tuple[tuple[Assign, ...], Expr], known: set[str]) -> tuple[tuple[Assign, ...], Expr]:
    n = Name("n")
    outside = [
        either(Binary("<", n, _of(f"{prefix}_lo")), Binary(">=", n, _of(f"{prefix}_hi")))
        for prefix in ("full", "also")
        if f"{prefix}_lo" in known
    ]
    return (*tile[0], assign(n, tile[1])), both(*outside)
