"""Types in orchestration: what each name of a kernel body stands for, and whether the operands of each operation fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from cubridge.ir.coordinates import THREAD_NAMES
from cubridge.ir.evaluate import known_int
from cubridge.ir.families import WALKS
from cubridge.ir.nodes import (
    Attr,
    Barrier,
    Call,
    Captured,
    Counters,
    Expr,
    Field,
    FieldType,
    Global,
    Index,
    Kernel,
    Name,
    SharedValue,
    TensorMap,
    Tile,
    TileList,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.region_types import family_of, scalar_fields, tile_fields
from cubridge.ir.typecheck import BASE_NAMES, BOOL, FLOAT, INT, Scope, fail, infer
from cubridge.ir.types import DType, ValueType


class Handle(StrEnum):
    """Names that stand for no number; the value says what, in messages."""

    TILE = "a query tile"
    KEYS = "a key sequence"
    ROW = "a row state"
    KEPT = "a score state"
    RING = "a ring"


@dataclass(frozen=True, slots=True)
class Registers:
    """A register tile; a row vector has no columns."""

    dtype: DType
    rows: int
    cols: int | None

    def __str__(self) -> str:
        return f"registers {self.dtype}[{self.rows}{'' if self.cols is None else f', {self.cols}'}]"


@dataclass(frozen=True, slots=True)
class SharedSlot:
    """One slot of a shared tile."""

    dtype: DType
    rows: int
    cols: int

    def __str__(self) -> str:
        return f"shared {self.dtype}[{self.rows}, {self.cols}]"

    @property
    def bytes(self) -> int:
        return self.rows * self.cols * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class BarrierSlot:
    def __str__(self) -> str:
        return "a barrier"


@dataclass(frozen=True, slots=True)
class View:
    """The rows of one batch and head of a tensor; one number a row if `vector`."""

    dtype: DType
    vector: bool
    mapped: bool

    def __str__(self) -> str:
        return f"a view of {'one number a row' if self.vector else 'rows'} of {self.dtype}"


Kind: TypeAlias = ValueType | Handle | Registers | SharedSlot | BarrierSlot | View

RING_FIELDS: Final[Mapping[str, ValueType]] = {"slot": INT, "phase": INT}


def constant_int(kernel: Kernel, expr: Expr) -> int:
    """The value of a compile-time integer. Errors: CU207 if it is none."""
    value = known_int(expr, kernel.constant_values)
    return fail("CU207", f"`{print_expr(expr)}` is no compile-time integer", expr) if value is None else value


def constant_range(kernel: Kernel, start: Expr, stop: Expr) -> range | None:
    """The steps of a loop between compile-time integers; None for another one."""
    first, last = (known_int(x, kernel.constant_values) for x in (start, stop))
    return None if first is None or last is None else range(first, last)


def shared_slot(kernel: Kernel, tile: Tile) -> SharedSlot:
    return SharedSlot(tile.dtype, constant_int(kernel, tile.rows), constant_int(kernel, tile.cols))


def slot_count(kernel: Kernel, kind: FieldType) -> int:
    """Slots of a shared object; 1 if it is not an array."""
    slots = kind.slots if isinstance(kind, Tile | Barrier) else None
    return 1 if slots is None else constant_int(kernel, slots)


@dataclass(frozen=True, slots=True)
class BodyScope:
    """What names stand for at one place of a body."""

    kernel: Kernel
    names: Mapping[str, Kind]

    @staticmethod
    def of(kernel: Kernel) -> BodyScope:
        constants = {c.name: INT if isinstance(c.value, int) else FLOAT for c in kernel.constants}
        return BodyScope(kernel, {**BASE_NAMES, **dict.fromkeys(THREAD_NAMES, INT), **constants})

    def bind(self, name: str, kind: Kind) -> BodyScope:
        return replace(self, names={**self.names, name: kind})

    # ---- expressions -------------------------------------------------------------------------------------------------

    def kind(self, expr: Expr) -> Kind:
        """What an operand or a value is. Errors: CU201, CU202, CU206, CU207."""
        match expr:
            case Name(name) if name in self.names:
                return self.names[name]
            case Call("work_tile", args):
                return self._call(expr, args, (INT,) * len(self.kernel.schedule.params), Handle.TILE)
            case Call("tile_at", args):
                return self._call(expr, args, (INT, INT, INT, INT), Handle.TILE)
            case Call(name, args) if name in WALKS:
                return self._call(expr, args, (Handle.TILE,), Handle.KEYS)
            case Call("row_state", args):
                return self._call(expr, args, (), Handle.ROW)
            case Call("score_state", args):
                return self._call(expr, args, (), Handle.KEPT)
            case Call("rows" | "columns", (tile, first, count)):
                return self._window(expr, tile, first, count)
            case Call("Ring", args):
                for arg in args:
                    if constant_int(self.kernel, arg) < 1:
                        fail("CU207", "this must be positive", arg)
                return self._call(expr, args, (INT,), Handle.RING)
            case Attr(Name("smem"), name) | Index(Attr(Name("smem"), name)):
                return self._shared(expr, name)
            case Index(Attr(Name("p"), name), indices):
                return self._view(expr, name, indices)
            case _:
                return infer(expr, self._scalars())

    def int(self, expr: Expr) -> None:
        kind = self.kind(expr)
        if not isinstance(kind, ValueType) or not kind.dtype.is_int:
            fail("CU202", f"this must be an integer, and is {kind}", expr)

    def _scalars(self) -> Scope:
        names = {n: k for n, k in self.names.items() if isinstance(k, ValueType)}
        fields: dict[str, Mapping[str, ValueType]] = {"p": scalar_fields(self.kernel.params)}
        fields["smem"] = {
            f.name: ValueType(f.type.dtype) for f in self.kernel.shared if isinstance(f.type, SharedValue)
        }
        for name, kind in self.names.items():
            if kind is Handle.TILE:
                fields[name] = tile_fields(self.kernel)
            elif kind is Handle.RING:
                fields[name] = RING_FIELDS
        return Scope(names, fields, {}, other_call=self._scalar_call)

    def _scalar_call(self, expr: Call) -> ValueType:
        """Calls that only orchestration has and that give a number."""
        match expr.fn, expr.args:
            case name, args if name in family_of(self.kernel).walk[1:]:
                takes, gives = _WALK[family_of(self.kernel).walk.index(name) - 1]
                return self._number(expr, args, takes, gives)
            case "bytes", (Attr(Name("smem"), name),) if isinstance(_type(self.kernel.shared, name), Tile):
                return INT
            case "present", (Attr(Name("p"), name),) if _optional(_type(self.kernel.params, name)):
                return BOOL
            case "atomic_add", (Attr(Name("p"), name), index, amount) if isinstance(
                _type(self.kernel.params, name), Counters
            ):
                self.int(index)
                self.int(amount)
                return INT
            case "bytes" | "present" | "atomic_add", _:
                return fail("CU202", f"`{expr.fn}` does not apply to this", expr, _CALL_HELP[expr.fn])
            case _:
                return fail("CU201", f"`{expr.fn}` cannot be called here", expr)

    def _number(self, expr: Call, args: tuple[Expr, ...], expected: tuple[Kind, ...], result: ValueType) -> ValueType:
        self._call(expr, args, expected, result)
        return result

    def _call(self, expr: Call, args: tuple[Expr, ...], expected: tuple[Kind, ...], result: Kind) -> Kind:
        if len(args) != len(expected):
            fail("CU206", f"`{expr.fn}` takes {len(expected)} arguments, not {len(args)}", expr)
        for arg, kind in zip(args, expected, strict=True):
            self.expect(arg, kind)
        return result

    def expect(self, expr: Expr, kind: Kind) -> None:
        """Errors: CU202 if `expr` is not of this kind."""
        own = self.kind(expr)
        as_int = isinstance(own, ValueType) and own.dtype.is_int and kind == INT
        if own != kind and not as_int:
            fail("CU202", f"this must be {kind}, and is {own}", expr)

    def _shared(self, expr: Expr, name: str) -> Kind:
        kind = _type(self.kernel.shared, name)
        indices = expr.indices if isinstance(expr, Index) else ()
        if kind is None:
            fail("CU201", f"there is no shared `{name}`", expr)
        if isinstance(kind, SharedValue):
            return ValueType(kind.dtype) if not indices else fail("CU206", f"`smem.{name}` is one value", expr)
        has_slots = isinstance(kind, Tile | Barrier) and kind.slots is not None
        if len(indices) != has_slots:
            fail("CU206", f"`smem.{name}` {'has slots: index it' if has_slots else 'has no slots'}", expr)
        for index in indices:
            self.int(index)
            self._in_range(index, slot_count(self.kernel, kind))
        return shared_slot(self.kernel, kind) if isinstance(kind, Tile) else BarrierSlot()

    def _window(self, expr: Call, tile: Expr, first: Expr, count: Expr) -> Kind:
        """Some rows or columns of a shared tile."""
        kind = self.kind(tile)
        if not isinstance(kind, SharedSlot):
            fail("CU202", f"`{expr.fn}` are of a shared tile, and this is {kind}", tile)
        self.int(first)
        size, has = constant_int(self.kernel, count), kind.rows if expr.fn == "rows" else kind.cols
        begins = known_int(first, self.kernel.constant_values)
        if not 0 < size <= has or (begins is not None and not 0 <= begins <= has - size):
            fail("CU206", f"these {expr.fn} are outside of a tile with {has}", expr)
        return replace(kind, rows=size) if expr.fn == "rows" else replace(kind, cols=size)

    def _in_range(self, index: Expr, slots: int) -> None:
        value = known_int(index, self.kernel.constant_values)
        if value is not None and not 0 <= value < slots:
            fail("CU206", f"slot {value} of {slots}", index)

    def _view(self, expr: Expr, name: str, indices: tuple[Expr, ...]) -> Kind:
        kind = _type(self.kernel.params, name)
        if isinstance(kind, Captured | TileList):
            return infer(expr, replace(self._scalars(), captured={name: kind}))
        if not isinstance(kind, Global | TensorMap):
            fail("CU201", f"`p.{name}` is no tensor", expr)
        if len(indices) != 2:
            fail("CU206", f"a view of `p.{name}` is `p.{name}[batch, head]`", expr)
        for index in indices:
            self.int(index)
        return View(kind.dtype, len(kind.shape) == 3, isinstance(kind, TensorMap))


_WALK: Final[tuple[tuple[tuple[Kind, ...], ValueType], ...]] = (
    ((Handle.KEYS,), INT),
    ((Handle.KEYS, INT), INT),
    ((Handle.KEYS, INT), BOOL),
)
"""What the regions of a walk take and give: the count, the tile of a step, and whether it is masked."""
_CALL_HELP: Final = {
    "bytes": "`bytes(smem.NAME)` of a shared tile",
    "present": "`present(p.NAME)` of an optional parameter",
    "atomic_add": "`atomic_add(p.NAME, index, amount)` of counters",
}


def _type(fields: tuple[Field, ...], name: str) -> FieldType | None:
    return next((f.type for f in fields if f.name == name), None)


def _optional(kind: FieldType | None) -> bool:
    return isinstance(kind, Global | Counters) and kind.optional
