"""Captured values: parameters of the kernel, and where their elements are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeVar

from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import poly
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.algebra.signs import at_most, nonnegative
from cubridge.ir.capture_names import HOST_NAMES, capture_of, field_name
from cubridge.ir.contract import KEY_PADDING
from cubridge.ir.nodes import (
    SIZES,
    Assign,
    Attr,
    Binary,
    Call,
    Captured,
    Expr,
    Field,
    Function,
    If,
    Index,
    IntLit,
    Kernel,
    Name,
    Node,
    Row,
    Scalar,
    Stmt,
    TileList,
)  # fmt: skip
from cubridge.ir.region_types import TILE_FIELDS
from cubridge.ir.tile_shape import size_of
from cubridge.ir.types import DType
from cubridge.ir.walk import map_children, substitute, walk
from cubridge.passes.base import Pass, PassContext, fault
from cubridge.passes.coerce import Coercion
from cubridge.passes.names import is_readable
from cubridge.passes.options import Word
from cubridge.passes.regions import assign, free_name, tile, with_region
from cubridge.passes.shape import tile_shape

_TYPES: Final = {"f32": DType.F32, "i32": DType.I32}
_KINDS: Final = {"float": "f32", "int": "i32", "bool": "i32"}


@dataclass(frozen=True, slots=True)
class BindCaptured(Pass):
    """Give the kernel a captured value.
    rewrite:   params   -->   FIELD=Captured(dtype, extents, of=NAME), or FIELD=Scalar(dtype, host=NAME) without extents
    ensures:   expressions of later passes may read it as `NAME[index, ..]`, or `NAME`. The field is called NAME too, and `of` left
               out, unless the kernel has that name.
    Errors:    CU508 for a name that expressions or host formulas cannot read, or a type other than f32 and i32."""

    name: ClassVar[str] = "bind-captured"
    example: ClassVar[str] = 'bind-captured{capture="slopes",dtype="f32",extents="Hq"}'
    capture: Word
    dtype: Word
    extents: tuple[Expr, ...] = ()

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        dtype, name = _TYPES.get(self.dtype.value), self.capture.value
        if dtype is None:
            raise fault("CU508", f"a captured value is f32 or i32, not `{self.dtype.value}`", self.dtype.span)
        if any(capture_of(f) == name for f in kernel.params):
            raise fault("CU508", f"`{name}` is bound already", self.capture.span)
        meant = () if self.extents else (*HOST_NAMES, *(c.name for c in kernel.constants))
        if not is_readable(name) or name in meant:
            help = "give it another name in the reference"
            raise fault("CU508", f"expressions cannot read a captured value `{name}`", self.capture.span, help)
        field = field_name(name, kernel)
        captured = Captured(dtype, self.extents, of=None if field == name else name)
        kind = captured if self.extents else Scalar(dtype, Name(name))
        return replace(kernel, params=(*kernel.params, Field(field, kind, fixed=False)))


_TILE_EXTENTS: Final[Mapping[Expr, Expr]] = {tile("b"): Name("B"), tile("h"): Name("Hq"), tile("hk"): Name("Hk")}
_PLACED: Final = ("score", "mask", "row_update", "row_probs", "row_rescale", "row_finalize", "key_sequence")


@dataclass(frozen=True, slots=True)
class PlaceCaptured(Pass):
    """Load captured values where they change, and never out of range.
    rewrite:   p.slope[tile.h] * p.scale  -->  tile.slope, filled by tile_setup
               p.doc[tile.b, i]           -->  tile.doc_i, filled by tile_setup; i clamped to the last row
               p.doc[tile.b, j]           -->  doc_j, loaded once per key column; the table padded to whole tiles, or j clamped
               p.table[tile.h, i - j + R] -->  the same, with i and j clamped where the index could leave the table
               p.text[tile.b, j]          -->  of a table that ends before the keys do: j clamped to it; a guard decides what counts
               p.table[p.index[tile.b, j]] --> the same, with what is read as an index clamped to the table"""

    name: ClassVar[str] = "place-captured"
    example: ClassVar[str] = (
        'bind-captured{capture="slopes",dtype="f32",extents="Hq"},'
        'rewrite-score{score="s * D ** -0.5 + slopes[h] * (j - i)"},'
        "place-captured"
    )

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        placer = _Placer(kernel)
        walks_lists = any(isinstance(f.type, TileList) for f in kernel.params)
        for name in (n for n in _PLACED if not (walks_lists and n == "key_sequence")):
            placer.region(name)
        return placer.kernel


def _at_most(size: int) -> int:
    """Rows or keys of a tile in every instantiation: where there are several, they divide the padding of keys."""
    return KEY_PADDING if KEY_PADDING % size == 0 else size


E = TypeVar("E", bound=Expr)
N = TypeVar("N", bound=Node)


class _Placer:
    """Moves the loads of one kernel, region by region."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        tiles = tile_shape(kernel)
        self.pad = _at_most(size_of(kernel, tiles.keys))
        ends: dict[Expr, Expr] = {
            Name("i"): Binary("+", Name("Lq"), IntLit(_at_most(size_of(kernel, tiles.queries)) - 2)),
            Name("j"): Binary("+", Name("Lk"), IntLit(self.pad - 2)),
        }
        self.facts = replace(Facts.of(kernel), most=ends.get)
        self.key_loads: list[Assign] = []
        self.guarded = False

    def region(self, name: str) -> None:
        self.key_loads = []
        region: Function = self.kernel.region(name)
        body = tuple(self._statement(self._kept_inside(s)) for s in region.body)
        result = None if region.result is None else self._placed(self._kept_inside(region.result))
        self.kernel = with_region(self.kernel, name, (*self.key_loads, *body), result)

    def _statement(self, statement: Stmt) -> Stmt:
        match statement:
            case Assign(target, value):
                return replace(statement, target=target, value=self._placed(value))
            case If(_, then, _):
                return replace(statement, then=tuple(self._statement(s) for s in then))
            case _:
                return statement

    def _placed(self, expr: Expr) -> Expr:
        if isinstance(expr, Call) and expr.fn == "where":
            return self._placed_choice(expr)
        if self._is_loaded(expr):
            if not _reads(expr, ("i", "j")) and not _is_local(expr):
                return self._tile_field(self._without_guard(expr), "", lambda dtype: Scalar(dtype))
            if not _reads(expr, ("j",)) and not _is_local(expr):
                return self._tile_field(self._at_a_row(expr), "_i", lambda dtype: Row(dtype))
        if isinstance(expr, Index):
            return self._load(expr)

        def change(node: Node) -> Node:
            return self._placed(node) if isinstance(node, Expr) else node

        return map_children(expr, change)

    def _placed_choice(self, choice: Call) -> Call:
        """What is loaded elsewhere loses the condition of the choice."""
        condition, *branches = choice.args
        condition, before = self._placed(condition), self.guarded
        self.guarded = True
        branches = [self._placed(b) for b in branches]
        self.guarded = before
        return replace(choice, args=(condition, *branches))

    def _at_a_row(self, expr: Expr) -> Expr:
        """The expression at an existing row, and inside of tables that end before the rows do."""
        return self._without_guard(_at_a_row(expr))

    def _without_guard(self, expr: E) -> E:
        """The expression with its loads inside of their tables."""

        def change(node: Node) -> Node:
            node = map_children(node, change)
            return self._inside(node) if isinstance(node, Index) and _is_load(node) else node

        result = change(expr)
        assert isinstance(result, type(expr))
        return result

    def _is_loaded(self, expr: Expr) -> bool:
        """Is this a load, or arithmetic of floats that has one."""
        loads = [n for n in walk(expr) if _is_load(n)]
        if isinstance(expr, Index):
            return _is_load(expr)
        return _is_arithmetic(expr) and any(_table(self.kernel, x).type.dtype.is_float for x in loads)

    def _tile_field(self, value: Expr, suffix: str, kind: Callable[[DType], Scalar | Row]) -> Expr:
        """The field of the tile that `tile_setup` fills with `value`."""
        setup = self.kernel.region("tile_setup")
        for statement in setup.body:
            if isinstance(statement, Assign) and statement.value == value:
                return statement.target
        loads = [n for n in walk(value) if _is_load(n)]
        first = _table(self.kernel, loads[0])
        dtype = first.type.dtype if isinstance(value, Index) else _TYPES[_KINDS[Coercion(self.kernel).typed(value)[1]]]
        name = free_name(first.name + suffix, {f.name for f in self.kernel.tile_state} | TILE_FIELDS.keys())
        state = (*self.kernel.tile_state, Field(name, kind(dtype)))
        self.kernel = replace(self.kernel, tile_state=state)
        self.kernel = with_region(self.kernel, "tile_setup", (*setup.body, assign(tile(name), value)))
        return tile(name)

    def _load(self, load: Index) -> Expr:
        """A load that varies over keys, made safe for every row and key of a tile."""
        field = _table(self.kernel, load)
        safe = self._in_range(load, field)
        if _reads(safe, ("i",)) or _is_local(safe):
            return safe
        for known in self.key_loads:
            if known.value == safe:
                return known.target
        taken = {n.id for n in walk(self.kernel) if isinstance(n, Name)}
        taken |= {t.target.id for t in self.key_loads if isinstance(t.target, Name)}
        local = assign(free_name(f"{field.name}_j", taken), safe)
        self.key_loads.append(local)
        return local.target

    def _in_range(self, load: Index, field: _Table) -> Index:
        """The load with i, j clamped as far as its indices need it; a last index j is padded for instead."""
        if self._is_in_range(load):
            return load
        padded = self._padded(load, field)
        if padded is not None:
            return padded
        for rows, keys in ((True, False), (False, True), (True, True)):
            tried = _clamped(load, rows, keys)
            if self._is_in_range(tried):
                return tried
        return self._without_guard(load)

    def _inside(self, load: Index) -> Index:
        """The load with its own indices clamped to the table: what guards it, as the condition of a `where`, stands elsewhere."""
        extents = _table(self.kernel, load).type.extents
        indices = (
            self._clamped_to(x, extent) if self._may_leave(x, extent) else x
            for x, extent in zip(load.indices, extents, strict=True)
        )
        return replace(load, indices=tuple(indices))

    def _may_leave(self, index: Expr, extent: Expr) -> bool:
        """Of its extent, where nothing else says that it is inside: as it was read, a tile's own indices are."""
        of_tile = self.guarded and _reads(index, ("tile",)) and _TILE_EXTENTS.get(index) != extent
        return (of_tile or _reads(index, ("i", "j"))) and not self._is_inside(index, extent)

    def _clamped_to(self, index: Expr, extent: Expr) -> Expr:
        if not nonnegative(poly(index), self.facts):
            index = Call("maximum", (index, IntLit(0)))
        if at_most(poly(index) + 1, poly(extent), self.facts):
            return index
        last = IntLit(extent.value - 1) if isinstance(extent, IntLit) else Binary("-", extent, IntLit(1))
        return Call("minimum", (index, last))

    def _is_in_range(self, load: Index) -> bool:
        """Are the indices that read i or j surely inside of their extents, also of loads that are indices."""
        return all(
            self._is_inside(x, extent)
            for part in walk(load)
            if isinstance(part, Index) and _is_load(part)
            for x, extent in zip(part.indices, _table(self.kernel, part).type.extents, strict=True)
            if _reads(x, ("i", "j"))
        )

    def _is_inside(self, index: Expr, extent: Expr) -> bool:
        return nonnegative(poly(index), self.facts) and at_most(poly(index) + 1, poly(extent), self.facts)

    def _kept_inside(self, node: N) -> N:
        """With indices that are read from a captured tensor clamped to the extent: what a tensor holds is not known."""
        changed = map_children(node, self._kept_inside)
        if not (isinstance(changed, Index) and _is_load(changed)):
            return changed
        extents = _table(self.kernel, changed).type.extents
        indices = tuple(self._clamped_data(x, n) for x, n in zip(changed.indices, extents, strict=True))
        return replace(changed, indices=indices)

    def _clamped_data(self, index: Expr, extent: Expr) -> Expr:
        if not any(_is_load(n) for n in walk(index)) or self._is_inside(index, extent):
            return index
        last = IntLit(extent.value - 1) if isinstance(extent, IntLit) else Binary("-", extent, IntLit(1))
        return Call("minimum", (Call("maximum", (index, IntLit(0))), last))

    def _padded(self, load: Index, field: _Table) -> Index | None:
        """`table[.., j]` of a table of at least Lk keys, which is then padded to whole key tiles."""
        *outer, last = load.indices
        if last != Name("j") or not at_most(Poly.atom(Name("Lk")), poly(field.type.extents[-1]), self.facts):
            return None
        if any(_reads(x, ("j",)) for x in outer):
            return None
        self._pad(field.name)
        return _clamped(load, rows=True, keys=False)

    def _pad(self, name: str) -> None:
        def change(field: Field) -> Field:
            same = field.name == name and isinstance(field.type, Captured)
            return replace(field, type=replace(field.type, pad=self.pad)) if same else field  # pyright: ignore[reportCallIssue]

        self.kernel = replace(self.kernel, params=tuple(change(f) for f in self.kernel.params))


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    type: Captured


def _table(kernel: Kernel, load: Node) -> _Table:
    assert isinstance(load, Index) and isinstance(load.base, Attr)
    name = load.base.name
    type = next(f.type for f in kernel.params if f.name == name)
    assert isinstance(type, Captured)
    return _Table(name, type)


def _is_load(node: Node) -> bool:
    return isinstance(node, Index) and isinstance(node.base, Attr) and node.base.base == Name("p")


def _is_arithmetic(expr: Expr) -> bool:
    match expr:
        case Binary("+" | "-" | "*" | "/") | Call("minimum" | "maximum" | "abs"):
            return True
        case _:
            return False


def _reads(expr: Expr, names: Iterable[str]) -> bool:
    return any(isinstance(n, Name) and n.id in names for n in walk(expr))


def _is_local(expr: Expr) -> bool:
    """Does the value depend on what exists only inside of a region."""
    known = {*SIZES, "i", "j", "p", "tile", "LOG2E", "LN2", "pi", "inf"}
    return any(isinstance(n, Name) and n.id not in known for n in walk(expr))


_LAST_ROW: Final = Call("minimum", (Name("i"), Binary("-", Name("Lq"), IntLit(1))))
_LAST_KEY: Final = Call("minimum", (Name("j"), Binary("-", Name("Lk"), IntLit(1))))


def _clamped(expr: E, rows: bool, keys: bool) -> E:
    """The expression at the last row and key instead of those past them, inside of its loads."""
    values = ({"i": _LAST_ROW} if rows else {}) | ({"j": _LAST_KEY} if keys else {})
    return _with_indices(expr, values)


def _at_a_row(expr: E) -> E:
    """The expression at an existing row. Threads that hold no rows run `tile_setup` too, with rows before the tile."""
    return _with_indices(expr, {"i": Call("maximum", (_LAST_ROW, IntLit(0)))})


def _with_indices(expr: E, values: Mapping[str, Expr]) -> E:
    """The expression with other values of i and j inside of its loads."""

    def change(node: Node) -> Node:
        return substitute(node, values) if _is_load(node) else map_children(node, change)

    result = change(expr)
    assert isinstance(result, type(expr))
    return result
