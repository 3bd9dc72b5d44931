"""list-tiles: for a mask that reads data, the key tiles that each query tile sees, listed before the launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from cubridge.ir.algebra.exprs import both, operands
from cubridge.ir.diagnostics import InternalError
from cubridge.ir.nodes import (
    Argument,
    Assign,
    Attr,
    Binary,
    Call,
    Captured,
    Expr,
    Field,
    FloatLit,
    Index,
    IntLit,
    Kernel,
    Name,
    Record,
    Scalar,
    TileList,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.types import DType
from cubridge.ir.vocabulary import VALUE_REGIONS
from cubridge.ir.walk import free_names, walk
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.mask import IN_RANGE
from cubridge.passes.regions import assign, free_name, mask_predicate, param, returned, tile, with_region
from cubridge.passes.shape import TileShape, tile_shape

MOST_ENTRIES: Final = 25
"""Lists have at most about 2 to this power entries of 2 bytes, 64 MiB; beyond, neighbouring query tiles share one."""


@dataclass(frozen=True, slots=True)
class ListTiles(Pass):
    """Walk the key tiles that the data of a mask let a query tile see.
    rewrite:   kv_range: intervals   -->   the entries of a list, of which the first ones are masked
               params                -->   tiles=TileList(rows, keys, keep, axes), list_rows=Scalar(i32)
    requires:  mask is `s = where(predicate, s, -inf)`; the predicate reads captured elements by row or key, and does no arithmetic
               of floats, which a compiler may round otherwise than the maker of the lists does.
    ensures:   a tile that no row sees is not visited, and one that every row sees whole is not masked: exactly those, where no
               list is shared."""

    name: ClassVar[str] = "list-tiles"
    example: ClassVar[str] = (
        'bind-captured{capture="doc",dtype="i32",extents="B, maximum(Lq, Lk)"},'
        'rewrite-mask{keep="doc[b, j] == doc[b, i]"},'
        "list-tiles"
    )

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        predicate = mask_predicate(kernel)
        if predicate is None or not reads_data(predicate) or not _is_exact(predicate, kernel):
            return kernel
        keep = both(*[p for p in operands("&", predicate) if p != IN_RANGE])
        kernel = _with_lists(kernel, keep, tile_shape(kernel))
        from cubridge.passes.list_check import list_fault

        fault = list_fault(kernel, predicate)
        if fault is not None:
            raise InternalError(f"{fault} for mask `{print_expr(predicate)}`")
        return kernel


def reads_data(predicate: Expr) -> bool:
    """Does a predicate read a captured tensor at its row or key, so that intervals cannot decide it."""
    return any(isinstance(n, Index) and free_names(n) & {"i", "j"} for n in walk(predicate))


def _is_exact(predicate: Expr, kernel: Kernel) -> bool:
    """Is no float computed but by selection, negation and conversion of integers."""
    floats = {f.name for f in kernel.params if isinstance(f.type, Scalar | Captured) and f.type.dtype.is_float}
    return not any(_is_float_arithmetic(n, floats) for n in walk(predicate))


_SELECTIONS: Final = ("where", "minimum", "maximum", "abs", "f32", "i32", "i64", "ceil_div", "floor_div", "floor_mod")


def _is_float_arithmetic(node: object, floats: set[str]) -> bool:
    match node:
        case Binary("+" | "-" | "*" | "/", left, right):
            return node.op == "/" or any(_is_float(n, floats) for side in (left, right) for n in walk(side))
        case Call(fn):
            return fn not in _SELECTIONS
        case _:
            return False


def _is_float(node: object, floats: set[str]) -> bool:
    match node:
        case FloatLit() | Call("f32"):
            return True
        case Attr(Name("p"), name):
            return name in floats
        case _:
            return False


# ---- the walk of a list ----------------------------------------------------------------------------------------------


def walked_lists(kernel: Kernel) -> TileList | None:
    """The lists that a key sequence walks, if it does so as this pass writes it."""
    lists = [(f.name, f.type) for f in kernel.params if isinstance(f.type, TileList)]
    if len(lists) != 1:
        return None
    ((name, kind),) = lists
    hosts: dict[Expr, Expr | None] = {param(f.name): f.type.host for f in kernel.params if isinstance(f.type, Scalar)}
    walks = _walk(kernel, param(name), kind)
    as_written = all(returned(walks.region(n)) == returned(kernel.region(n)) for n in VALUE_REGIONS)
    return kind if as_written and hosts.get(kind.rows) == _rows(kind, tile_shape(kernel)) else None


def _with_lists(kernel: Kernel, keep: Expr, shape: TileShape) -> Kernel:
    taken = {*(f.name for f in kernel.params), *(c.name for c in kernel.constants)}
    tiles, rows = param(free_name("tiles", taken)), param(free_name("list_rows", taken))
    kind = TileList(rows, shape.keys, keep, _axes(keep))
    fields = (Field(rows.name, Scalar(DType.I32, _rows(kind, shape)), False), Field(tiles.name, kind, False))
    return _walk(replace(kernel, params=(*kernel.params, *fields)), tiles, kind)


def _walk(kernel: Kernel, tiles: Attr, kind: TileList) -> Kernel:
    """The kernel whose key sequence walks the lists in `tiles`."""

    def entry(at: Expr, list: Expr) -> Expr:
        return Index(tiles, (list, at))

    head: list[Assign] = [assign("list", _number(kind))]
    head += [assign(name, entry(IntLit(n), Name("list"))) for n, name in enumerate(("count", "masked"))]
    sequence = Record("KeySequence", tuple(Argument(n, Name(n)) for n in ("list", "count", "masked")))
    t = Binary("+", Name("t"), IntLit(TileList.HEAD))
    kernel = with_region(kernel, "key_sequence", head, sequence)
    kernel = with_region(kernel, "key_count", (), _key("count"))
    kernel = with_region(kernel, "key_tile", (), entry(t, _key("list")))
    return with_region(kernel, "key_masked", (), Binary("<", Name("t"), _key("masked")))


def _key(name: str) -> Attr:
    return Attr(Name("keys"), name)


def _axes(keep: Expr) -> tuple[Expr, ...]:
    """A list for each head only where the predicate depends on heads, and for each batch likewise."""
    read = {n.name for n in walk(keep) if isinstance(n, Attr) and n.base == Name("tile")}
    if read & {"h", "hk"}:
        return Name("B"), Name("Hq")
    return (Name("B"),) if "b" in read else ()


def _rows(kind: TileList, shape: TileShape) -> Expr:
    """Query rows of one list: a query tile, or as many as it takes to stay within `MOST_ENTRIES`."""
    return Binary("*", shape.queries, lists_together(replace(kind, rows=shape.queries)))


def lists_together(kind: TileList) -> Expr:
    """How many of these lists must be one to stay within `MOST_ENTRIES`."""
    lists, entries = kind.extents
    return Call("ceil_div", (Binary("*", lists, entries), Binary("**", IntLit(2), IntLit(MOST_ENTRIES))))


def _number(kind: TileList) -> Expr:
    """The number of the list of a query tile."""
    within = Binary("//", tile("q_start"), kind.rows)
    if not kind.axes:
        return within
    head: Expr = tile("b")
    if len(kind.axes) == 2:
        head = Binary("+", Binary("*", head, Name("Hq")), tile("h"))
    return Binary("+", Binary("*", head, Call("ceil_div", (Name("Lq"), kind.rows))), within)
