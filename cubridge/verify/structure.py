"""Rules: the parts of a kernel are all there, under names of their own; fields, traits and regions are well typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cubridge.ir.body_types import BodyScope, constant_int
from cubridge.ir.coordinates import THREAD_NAMES
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.hardware import ARCHITECTURES
from cubridge.ir.nodes import (
    Attr,
    Barrier,
    Captured,
    Constant,
    Counters,
    Element,
    Expr,
    Field,
    FieldType,
    Global,
    Kernel,
    Name,
    Node,
    Partial,
    QueryTileList,
    Row,
    Scalar,
    SharedValue,
    TensorMap,
    Tile,
    TileList,
)
from cubridge.ir.region_types import (
    ACCESSORS,
    check_region,
    family_of,
    tile_fields,
    tile_list_scope,
)
from cubridge.ir.typecheck import BASE_NAMES, FLOAT, INT, Scope, fail, infer
from cubridge.ir.types import DType
from cubridge.ir.vocabulary import SCHEDULE
from cubridge.ir.walk import SCOPES, free_names, walk

TEAMS: Final = ("block", "warpgroup")
_PLACES: Final[dict[str, tuple[type[FieldType], ...]]] = {
    "params": (Global, TensorMap, Scalar, Captured, TileList, Counters),
    "shared": (Tile, SharedValue, Barrier),
    "tile_state": (Scalar, Row),
    "row_state": (Row, Partial),
    "score_state": (Element,),
}


def check_structure(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU205 unless the regions are there, once and in order, and CU200 for a name that two things share."""
    names, known = tuple(r.name for r in kernel.regions), family_of(kernel).regions
    for region in kernel.regions:
        if region.name not in known:
            yield Diagnostic("CU205", f"`{region.name}` is no region", region.span)
    missing = [name for name in known if name not in names]
    if missing:
        yield Diagnostic("CU205", f"the kernel has no region `{missing[0]}`", kernel.span)
    elif names != tuple(known):
        place = next(r.span for r, name in zip(kernel.regions, known, strict=False) if r.name != name)
        yield Diagnostic("CU205", f"regions stand once, in the order {', '.join(known)}", place)
    if kernel.schedule.name != SCHEDULE:
        yield Diagnostic("CU205", f"the schedule is called `{SCHEDULE}`", kernel.schedule.span)
    yield from _shared_names(kernel)
    variant_seen = False
    for item in kernel.params:
        variant_seen |= not item.fixed
        if item.fixed and variant_seen:
            yield Diagnostic("CU205", f"`{item.name}` is fixed, and stands after a variant's parameter", item.span)


def _shared_names(kernel: Kernel) -> Iterator[Diagnostic]:
    taken = frozenset({*BASE_NAMES, *ACCESSORS, *THREAD_NAMES, *SCOPES})
    groups: dict[str, tuple[tuple[Field, ...] | tuple[Constant, ...], frozenset[str]]] = {
        "constants": (kernel.constants, taken),
        "params": (kernel.params, frozenset()),
        "shared": (kernel.shared, frozenset()),
        "tile_state": (kernel.tile_state, frozenset(tile_fields(kernel))),
        "row_state": (kernel.row_state, frozenset()),
        "score_state": (kernel.score_state, frozenset()),
    }
    for group, (items, reserved) in groups.items():
        seen: dict[str, Node] = {}
        for item in items:
            if item.name in reserved:
                yield Diagnostic("CU200", f"`{item.name}` means something else already", item.span)
            if item.name in seen:
                note = Note("the other one", seen[item.name].span)
                yield Diagnostic("CU200", f"`{item.name}` stands twice in `{group}`", item.span, (note,))
            seen[item.name] = item


def check_traits(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU207: architecture, team and thread count."""
    if kernel.arch not in ARCHITECTURES:
        yield Diagnostic("CU207", f"`{kernel.arch}` is none of {', '.join(ARCHITECTURES)}", kernel.span)
    if kernel.team not in TEAMS:
        yield Diagnostic("CU207", f"`{kernel.team}` is none of {', '.join(TEAMS)}", kernel.span)
    try:
        threads = constant_int(kernel, kernel.threads)
        unit = 128 if kernel.team == "warpgroup" else 32
        if not 0 < threads <= 1024 or threads % unit:
            fail("CU207", f"{threads} threads: a multiple of {unit} up to 1024 is needed", kernel.threads)
        BodyScope.of(kernel).int(kernel.row_origin)
    except CuError as error:
        yield from error.diagnostics


def check_regions(kernel: Kernel) -> Iterator[Diagnostic]:
    """The faults of every region: CU201 to CU206, CU208."""
    for region in kernel.regions:
        yield from check_region(kernel, region)


def check_fields(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU202, CU205, CU207: every field is of a type for its section, with well-typed expressions."""
    sections = {"params": kernel.params, "shared": kernel.shared}
    sections |= {"tile_state": kernel.tile_state, "row_state": kernel.row_state, "score_state": kernel.score_state}
    for section, fields in sections.items():
        for item in fields:
            if not isinstance(item.type, _PLACES[section]):
                yield Diagnostic("CU205", f"`{type(item.type).__name__}` has no place in `{section}`", item.span)
                continue
            try:
                _check_type(kernel, item.type)
                _check_capture(item)
            except CuError as error:
                yield from error.diagnostics


def _check_capture(item: Field) -> None:
    if isinstance(item.type, Captured) and item.type.of == item.name:
        raise CuError(Diagnostic("CU205", "`of` repeats the name of the field", item.span, help="leave it out"))


def _check_type(kernel: Kernel, kind: FieldType) -> None:
    match kind:
        case Global(_, shape) | TensorMap(_, shape):
            if len(shape) not in (3, 4):
                raise CuError(Diagnostic("CU206", f"a tensor has 3 or 4 axes, not {len(shape)}", kind.span))
            _host_ints(kernel, shape)
        case Captured(_, extents, pad):
            if pad < 1:
                raise CuError(Diagnostic("CU207", "`pad` is at least 1", kind.span))
            _host_ints(kernel, extents)
        case TileList():
            _check_tile_list(kernel, kind)
        case Scalar(dtype, host) if host is not None:
            value = infer(host, _host_scope(kernel, host))
            if value.dtype is DType.BOOL or (dtype.is_int and value.dtype.is_float):
                fail("CU202", f"the host gives {value}, and this is {dtype}", host)
        case Counters(count):
            constant_int(kernel, count)
        case Tile(_, rows, cols, slots, swizzle):
            for extent in (rows, cols, *(() if slots is None else (slots,))):
                _positive(kernel, extent)
            if swizzle not in (0, 32, 64, 128):
                raise CuError(Diagnostic("CU207", "a swizzle is 0, 32, 64 or 128 bytes", kind.span))
            row = constant_int(kernel, cols) * kind.dtype.bytes
            if swizzle and row % swizzle:
                message = f"a row of {row} bytes is no multiple of its swizzle, {swizzle} bytes"
                raise CuError(Diagnostic("CU207", message, kind.span))
        case Barrier(slots) if slots is not None:
            _positive(kernel, slots)
        case _:
            pass


_LIST_AXES: Final = ((), (Name("B"),), (Name("B"), Name("Hq")))
_NEEDS_AXES: Final = {"b": 1, "h": 2, "hk": 2}
"""Fields of the query tile that a predicate may read, and of how many axes its lists then are."""


def _check_tile_list(kernel: Kernel, kind: TileList) -> None:
    scope = tile_list_scope(kernel)
    _positive(kernel, kind.per_tile)
    if not infer(kind.per_list, scope).dtype.is_int:
        fail("CU202", "the rows or keys of a list are an integer", kind.per_list)
    if infer(kind.keep, scope).dtype is not DType.BOOL:
        fail("CU202", "a tile list is made of a truth for each row and key", kind.keep)
    if kind.axes not in _LIST_AXES:
        raise CuError(Diagnostic("CU206", "the axes of a tile list are none, `B`, or `B, Hq`", kind.span))
    of_queries, walked = isinstance(kind, QueryTileList), family_of(kernel).sequence
    if of_queries != (walked == "queries"):
        raise CuError(Diagnostic("CU206", f"a kernel of the family `{kernel.family}` walks no such tiles", kind.span))
    if of_queries and len(kind.axes) == 2:
        raise CuError(Diagnostic("CU206", "a list of query tiles is for all query heads of its keys", kind.span))
    for node in walk(kind.keep):
        if isinstance(node, Attr) and node.base == Name("tile") and _NEEDS_AXES[node.name] > len(kind.axes):
            fail("CU206", f"lists that are not made for each `tile.{node.name}` cannot depend on it", node)


def _positive(kernel: Kernel, expr: Expr) -> None:
    if constant_int(kernel, expr) < 1:
        fail("CU207", "this must be positive", expr)


def _host_ints(kernel: Kernel, exprs: Iterable[Expr]) -> None:
    for expr in exprs:
        if not infer(expr, _host_scope(kernel, expr)).dtype.is_int:
            fail("CU202", "an extent is an integer", expr)


def _host_scope(kernel: Kernel, expr: Expr) -> Scope:
    """Names of a host expression; what the launch knows beyond sizes and constants counts as an integer, which fits anywhere."""
    constants = {c.name: INT if isinstance(c.value, int) else FLOAT for c in kernel.constants}
    return Scope({**dict.fromkeys(free_names(expr), INT), **BASE_NAMES, **constants}, host=True)
