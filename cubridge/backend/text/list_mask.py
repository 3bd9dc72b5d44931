"""The mask of lists of key tiles as text of the kernel that makes them: of one row and key, and of some of them by their bounds.

What depends on a row alone, or on a key alone, and reads data, is a datum: it is read once for a row or a key, and has bounds over
those of a tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cubridge.backend.text.emit_c import CudaPrinter
from cubridge.backend.text.emit_expr import C_TYPES, Expressions
from cubridge.backend.text.emit_types import Types
from cubridge.backend.text.list_bounds import Bounds, has_edges
from cubridge.backend.text.names import Names, Spelling
from cubridge.ir.algebra.facts import NATURAL, Facts, least_of_host
from cubridge.ir.contract import CapturedAddress, CType, HostValue, LaunchContract
from cubridge.ir.families import FAMILIES
from cubridge.ir.nodes import Attr, Binary, Call, Captured, Expr, Index, IntLit, Name, Node
from cubridge.ir.region_types import ACCESSORS, TILE_FIELDS
from cubridge.ir.typecheck import BASE_NAMES, INT, Scope, infer
from cubridge.ir.types import Axis, DType, ValueType
from cubridge.ir.walk import map_children, rewrite, walk

_SIDES: Final = {"i": Attr(Name("row"), "i"), "j": Attr(Name("key"), "j")}
_SIDE_OF: Final = {frozenset({Axis.ROW}): "row", frozenset({Axis.KEY}): "key"}


def mask_text(keep: Expr, contract: LaunchContract) -> dict[str, str]:
    """What `common/list_tiles.cuh` asks of a mask, by the macro that says it. Errors: CU603 for what device code cannot say."""
    split = _Split(_scope(contract))
    kept = split.inner(keep)
    types = Types(split.shared_scope(), FAMILIES[contract.family], _facts(contract))
    emit = _Emitter(types, Spelling(Names.of(contract), {}))
    data = {f"LIST_{side.upper()}_DATA(DO, of)": " ".join(emit.data(split.data[side])) for side in ("row", "key")}
    return {**data, "LIST_KEEP": emit.element(kept), "LIST_TRUTH": Bounds(types, emit.element).truth(_named(kept))}


@dataclass(frozen=True, slots=True)
class Datum:
    name: str
    dtype: DType
    value: Expr


# ---- what is read of one side ----------------------------------------------------------------------------------------


@dataclass
class _Split:
    """Takes what depends on one side alone out of a mask. `data`: what was found, by side."""

    scope: Scope
    data: dict[str, list[Datum]] = field(default_factory=lambda: {"row": [], "key": []})

    def inner(self, expr: Expr) -> Expr:
        """The mask with fields of `row` and `key` in the place of data."""
        if isinstance(expr, Attr):
            return expr
        kind = infer(expr, self.scope)
        side = _SIDE_OF.get(kind.axes)
        reads = [n for n in walk(expr) if isinstance(n, Index)]
        if side is not None and kind.dtype is not DType.I64 and reads and all(has_edges(n, self.scope) for n in reads):
            return self._datum(side, kind.dtype, expr)
        return map_children(expr, lambda child: self.inner(child) if isinstance(child, Expr) else child)

    def _datum(self, side: str, dtype: DType, value: Expr) -> Expr:
        known = self.data[side]
        found = next((d for d in known if d.value == value), None)
        if found is None:
            found = Datum(f"x{len(known)}", dtype, value)
            known.append(found)
        return Attr(Name(side), found.name)

    def shared_scope(self) -> Scope:
        """Where rows and keys are values like any other."""
        data = {side: {d.name: ValueType(d.dtype) for d in found} for side, found in self.data.items()}
        fields = {**self.scope.fields, "row": {"i": INT, **data["row"]}, "key": {"j": INT, **data["key"]}}
        return Scope({n: t for n, t in self.scope.names.items() if n not in _SIDES}, fields, self.scope.captured)


@dataclass(frozen=True, slots=True)
class _Emitter:
    types: Types
    spelling: Spelling

    def element(self, expr: Expr, dtype: DType | None = None) -> str:
        """The C of an expression over rows and keys."""
        named = rewrite(_named(expr), self._within)
        return CudaPrinter().visit(Expressions(self.types, self.spelling).of(named, dtype))

    def data(self, data: list[Datum]) -> Iterator[str]:
        return (f"DO(of, {C_TYPES[d.dtype]}, {d.name}, {self.element(d.value)})" for d in data)

    def _within(self, node: Node) -> Node:
        """An element outside is that at the edge: what a condition drops may be read there."""
        match node:
            case Index(Attr(Name("p"), name), indices) if has_edges(node, self.types.scope):
                extents = self.types.captured(name).extents
                inside = (self._inside(x, n) for x, n in zip(indices, extents, strict=True))
                return Index(node.base, tuple(inside), span=node.span)
            case _:
                return node

    def _inside(self, index: Expr, extent: Expr) -> Expr:
        if _AXES.get(index) == extent:
            return index
        if not self.types.nonnegative(index):
            index = Call("where", (Binary("<", index, IntLit(0)), IntLit(0), index))
        return Call("where", (Binary("<", index, extent), index, Binary("-", extent, IntLit(1))))


_AXES: Final[Mapping[Expr, Expr]] = {
    Attr(Name("tile"), "b"): Name("B"),
    Attr(Name("tile"), "h"): Name("Hq"),
    Attr(Name("tile"), "hk"): Name("Hk"),
}


def _named(expr: Expr) -> Expr:
    """Rows and keys as fields of `row` and `key`."""

    def change(node: Node) -> Node:
        return _SIDES.get(node.id, node) if isinstance(node, Name) else node

    return rewrite(expr, change)


# ---- what is known of names ------------------------------------------------------------------------------------------


_DTYPES: Final = {CType.FLOAT: DType.F32, CType.I64: DType.I64, CType.INT: DType.I32}


def _scope(contract: LaunchContract) -> Scope:
    """What names stand for in a mask: rows, keys, batch, head, sizes, macros and parameters."""
    names = {**BASE_NAMES, **dict.fromkeys((m.name for m in contract.macros), INT)}
    names |= {name: ACCESSORS[name] for name in _SIDES}
    numbers = {f.name: ValueType(_DTYPES[f.c_type]) for f in contract.params if isinstance(f.value, HostValue)}
    return Scope(names, {"p": numbers, "tile": TILE_FIELDS}, dict(_captured(contract)))


def _captured(contract: LaunchContract) -> Iterator[tuple[str, Captured]]:
    for item in contract.params:
        if isinstance(item.value, CapturedAddress):
            dtype = DType.F32 if item.c_type is CType.FLOAT_POINTER else DType.I32
            yield item.name, Captured(dtype, item.value.extents, item.value.pad)


def _facts(contract: LaunchContract) -> Facts:
    least: dict[Expr, int | None] = {**NATURAL, **dict.fromkeys(_SIDES.values(), 0)}
    least |= {
        Attr(Name("p"), f.name): least_of_host(f.value.expr) for f in contract.params if isinstance(f.value, HostValue)
    }
    return Facts(least.get)
