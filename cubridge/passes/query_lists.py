"""The query tiles that a key tile must visit where a mask reads data: `list-tiles` in a mirror."""

from __future__ import annotations

from dataclasses import replace

from cubridge.ir.algebra.exprs import both
from cubridge.ir.diagnostics import InternalError
from cubridge.ir.nodes import (
    Argument,
    Attr,
    Binary,
    Call,
    Expr,
    Field,
    Index,
    IntLit,
    Kernel,
    Name,
    QueryTileList,
    Record,
    Scalar,
    TileList,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.types import DType
from cubridge.passes.list_check import list_fault
from cubridge.passes.list_tiles import lists_together
from cubridge.passes.mask import IN_RANGE
from cubridge.passes.regions import assign, free_name, param, tile, with_region
from cubridge.passes.shape import tile_shape


def with_query_lists(kernel: Kernel, keep: Expr, axes: tuple[Expr, ...]) -> Kernel:
    """`kernel` that walks lists of the query tiles which see its keys by `keep`, one for each batch if `axes` says so."""
    shape = tile_shape(kernel)
    taken = {*(f.name for f in kernel.params), *(c.name for c in kernel.constants)}
    tiles, keys = param(free_name("tiles", taken)), param(free_name("list_keys", taken))
    single = QueryTileList(shape.queries, shape.keys, keep, axes)
    kind = replace(single, keys=keys)
    host = Binary("*", shape.keys, lists_together(single))
    fields = (Field(keys.name, Scalar(DType.I32, host), False), Field(tiles.name, kind, False))
    made = _walk(replace(kernel, params=(*kernel.params, *fields)), tiles, kind)
    fault = list_fault(made, both(keep, IN_RANGE))
    if fault is not None:
        raise InternalError(f"{fault} for the query tiles of mask `{print_expr(keep)}`")
    return made


def _walk(kernel: Kernel, tiles: Attr, kind: QueryTileList) -> Kernel:
    """The kernel whose query sequence walks the lists in `tiles`."""

    def entry(at: Expr, list: Expr) -> Expr:
        return Index(tiles, (list, at))

    body = [assign("list", _number(kind))]
    body += [assign(name, entry(IntLit(n), Name("list"))) for n, name in enumerate(("count", "masked"))]
    sequence = Record("QuerySequence", tuple(Argument(n, Name(n)) for n in ("list", "count", "masked")))
    kernel = with_region(kernel, "query_sequence", body, sequence)
    kernel = with_region(kernel, "query_count", (), _of("count"))
    t = Binary("+", Name("t"), IntLit(TileList.HEAD))
    kernel = with_region(kernel, "query_tile", (), entry(t, _of("list")))
    return with_region(kernel, "query_masked", (), Binary("<", Name("t"), _of("masked")))


def _of(name: str) -> Attr:
    return Attr(Name("queries"), name)


def _number(kind: QueryTileList) -> Expr:
    """The number of the list of a key tile."""
    within = Binary("//", tile("kv_start"), kind.keys)
    if not kind.axes:
        return within
    return Binary("+", Binary("*", tile("b"), Call("ceil_div", (Name("Lk"), kind.keys))), within)
