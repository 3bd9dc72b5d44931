"""Rule: every statement of the kernel body and of the schedule has operands of the kinds and shapes that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from cubridge.ir.body_types import BarrierSlot, BodyScope, Handle, Kind, Registers, SharedSlot, View, constant_int
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.hardware import FRAGMENT_ROWS, MMA_COLUMNS, MMA_DEPTH, WARP, WARPGROUP
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Break,
    Cast,
    Clear,
    Copy,
    CopyAsync,
    Counters,
    DotRows,
    Expr,
    For,
    Gemm,
    If,
    Kernel,
    Load,
    Loop,
    Name,
    Op,
    ReadShared,
    ReduceAsync,
    RegionCall,
    RegisterTile,
    Scale,
    SharedValue,
    Stmt,
    Store,
    StoreAsync,
    WriteShared,
    Zero,
)
from cubridge.ir.region_types import family_of, tile_fields
from cubridge.ir.typecheck import BOOL, FLOAT, INT, fail
from cubridge.ir.types import Axis, DType
from cubridge.ir.walk import field_names


def check_body(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU201, CU202, CU206, CU207, CU209 in the kernel's body, each statement on its own."""
    checker = _Checker(kernel)
    checker.body(kernel.body, BodyScope.of(kernel))
    yield from checker.faults


def check_schedule(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU205 unless `work_tile` fills every field of the tile, calls `tile_setup` last and returns the tile."""
    schedule = kernel.schedule
    scope = BodyScope.of(kernel)
    for name in schedule.params:
        scope = scope.bind(name, INT)
    scope = scope.bind("tile", Handle.TILE)
    checker = _Checker(kernel)
    written: set[str] = set()
    for stmt in schedule.body[:-1]:
        match stmt:
            case Assign(Attr(Name("tile"), name)) if name in tile_fields(kernel):
                written.add(name)
            case Assign(Name()):
                pass
            case _:
                yield Diagnostic("CU205", "the schedule has assignments, and `tile_setup(tile)` at its end", stmt.span)
                return
        scope = checker.statement(stmt, scope)
    yield from checker.faults
    if not schedule.body or schedule.body[-1] != RegionCall("tile_setup", (Name("tile"),)):
        yield Diagnostic("CU205", "the schedule does not end in `tile_setup(tile)`", schedule.span)
    if schedule.result != Name("tile"):
        yield Diagnostic("CU205", "the schedule does not return `tile`", schedule.span)
    missing = [name for name in tile_fields(kernel) if name not in written]
    if missing:
        yield Diagnostic("CU208", f"the schedule leaves `tile.{missing[0]}` without a value", schedule.span)


class _Checker:
    """Walks a body; a statement at fault is reported and what it would define is left out."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.faults: list[Diagnostic] = []
        self.lost: set[str] = set()

    def body(self, body: tuple[Stmt, ...], scope: BodyScope, in_loop: bool = False) -> None:
        for stmt in body:
            self._loops(stmt, in_loop)
            scope = self.statement(stmt, scope)
            match stmt:
                case If(_, then, orelse):
                    self.body(then, scope, in_loop)
                    self.body(orelse, scope, in_loop)
                case For(var, _, _, inner):
                    self.body(inner, scope.bind(var, INT), True)
                case Loop(inner):
                    self.body(inner, scope, True)
                case _:
                    pass

    def _loops(self, stmt: Stmt, in_loop: bool) -> None:
        if isinstance(stmt, Break) and not in_loop:
            self.faults.append(Diagnostic("CU205", "`break` leaves no loop here", stmt.span))

    def statement(self, stmt: Stmt, scope: BodyScope) -> BodyScope:
        try:
            return self._checked(stmt, scope)
        except CuError as error:
            if not self._follows_from_a_fault(error):
                self.faults += error.diagnostics
            match stmt:
                case Assign(Name(name)) | RegisterTile(name):
                    self.lost.add(name)
                case _:
                    pass
            return scope

    def _follows_from_a_fault(self, error: CuError) -> bool:
        first = error.diagnostics[0]
        return first.code == "CU201" and any(f"`{name}`" in first.message for name in self.lost)

    def _checked(self, stmt: Stmt, scope: BodyScope) -> BodyScope:
        match stmt:
            case Assign(Name(name), value):
                return scope.bind(name, self._rebound(stmt, name, scope.kind(value), scope))
            case Assign(target, value):
                self._store_value(target, value, scope)
            case RegisterTile(name, dtype, rows, cols):
                extents = [constant_int(self.kernel, e) for e in (rows, cols) if e is not None]
                if len(extents) == 1 or extents[0] != 1:  # one row of numbers is the same for all rows of a team
                    self.faults += _team_rows(self.kernel, extents[0], rows)
                return scope.bind(name, Registers(dtype, extents[0], extents[1] if len(extents) > 1 else None))
            case If(condition):
                scope.expect(condition, BOOL)
            case For(_, start, stop):
                scope.int(start)
                scope.int(stop)
            case Gemm():
                _gemm(stmt, scope)
            case RegionCall(region, args):
                _region_call(stmt, region, args, scope)
            case Op():
                _operation(stmt, scope)
            case _:
                pass
        return scope

    def _rebound(self, stmt: Assign, name: str, kind: Kind, scope: BodyScope) -> Kind:
        if name in BodyScope.of(self.kernel).names:
            fail("CU205", f"`{name}` cannot be assigned", stmt.target)
        old = scope.names.get(name, kind)
        if old != kind:
            fail("CU202", f"`{name}` is {old}, and this is {kind}", stmt.value)
        return kind

    def _store_value(self, target: Expr, value: Expr, scope: BodyScope) -> None:
        match target:
            case Attr(Name("smem"), name) if any(
                f.name == name and isinstance(f.type, SharedValue) for f in self.kernel.shared
            ):
                kind = scope.kind(target)
                scope.expect(value, kind)
            case Attr(Name("tile"), name) if scope.names.get("tile") is Handle.TILE and name in tile_fields(
                self.kernel
            ):
                scope.int(value)
            case _:
                fail("CU205", "this cannot be assigned to", target)


# ---- tiles -----------------------------------------------------------------------------------------------------------


def _registers(expr: Expr, scope: BodyScope) -> Registers:
    kind = scope.kind(expr)
    return kind if isinstance(kind, Registers) else fail("CU202", f"this must be a register tile, and is {kind}", expr)


def _slot(expr: Expr, scope: BodyScope) -> SharedSlot:
    kind = scope.kind(expr)
    return kind if isinstance(kind, SharedSlot) else fail("CU202", f"this must be a shared tile, and is {kind}", expr)


def _view(expr: Expr, scope: BodyScope) -> View:
    kind = scope.kind(expr)
    return kind if isinstance(kind, View) else fail("CU202", f"this must be a view of a tensor, and is {kind}", expr)


def _team_rows(kernel: Kernel, rows: int, place: Expr) -> Iterator[Diagnostic]:
    """The rows of a register tile are those of its team's fragments."""
    warps = (WARPGROUP if kernel.team == "warpgroup" else constant_int(kernel, kernel.threads)) // WARP
    held = kernel.constant_values.get("ROWS")
    if isinstance(held, int) and rows != warps * held * FRAGMENT_ROWS:
        message = f"{rows} rows, and {warps} warps hold {held} fragment rows of {FRAGMENT_ROWS} each"
        yield Diagnostic("CU207", message, place.span)


def _gemm(stmt: Gemm, scope: BodyScope) -> None:
    dst, b = _registers(stmt.dst, scope), _slot(stmt.b, scope)
    a = scope.kind(stmt.a)
    if not isinstance(a, Registers | SharedSlot) or a.cols is None:
        fail("CU202", f"a gemm reads tiles, and this is {a}", stmt.a)
    if dst.dtype is not DType.F32:
        fail("CU209", f"a gemm accumulates in f32, and this is {dst.dtype}", stmt.dst)
    by_threads = isinstance(a, Registers) and a.dtype is DType.F32 and not stmt.asynchronous
    if (a.dtype is not b.dtype and not by_threads) or b.dtype not in (DType.BF16, DType.F16):
        fail("CU209", f"a gemm multiplies tiles of bf16 or of f16, not {a.dtype} and {b.dtype}", stmt.b)
    n, k = (b.rows, b.cols) if stmt.transposed else (b.cols, b.rows)
    m, depth = (a.cols, a.rows) if stmt.a_transposed else (a.rows, a.cols)
    if (dst.rows, dst.cols, depth) != (m, n, k):
        one, other = f"{a}{'.T' * stmt.a_transposed}", f"{b}{'.T' * stmt.transposed}"
        fail("CU209", f"shapes do not fit: {dst} from {one} and {other}", stmt.dst)
    if stmt.a_transposed and isinstance(a, Registers):
        fail("CU209", "a factor in registers cannot be transposed", stmt.a)
    for what, extent, unit in (("columns", n, MMA_COLUMNS), ("depth", k, MMA_DEPTH)):
        if extent % unit:
            fail("CU207", f"a gemm of {extent} {what}: a multiple of {unit} is needed", stmt.b)


def _region_call(stmt: RegionCall, region: str, args: tuple[Expr, ...], scope: BodyScope) -> None:
    family = family_of(scope.kernel)
    names = family.regions.get(region, ())
    if region == "tile_setup" and not family.walks_heads:
        raise CuError(Diagnostic("CU205", "`tile_setup` is called by the schedule alone", stmt.span))
    if len(args) != len(names):
        raise CuError(Diagnostic("CU206", f"`{region}` takes {len(names)} arguments, not {len(args)}", stmt.span))
    for name, arg in zip(names, args, strict=True):
        match name:
            case "s" | "o" | "dp" | "ds" | "w" | "lse" | "delta" | "d_lse":
                _fragment(name, arg, region, scope)
            case "tile":
                scope.expect(arg, Handle.TILE)
            case "row":
                scope.expect(arg, Handle.ROW)
            case "kept":
                scope.expect(arg, Handle.KEPT)
            case _:
                scope.int(arg)


def _fragment(name: str, arg: Expr, region: str, scope: BodyScope) -> None:
    """A tile, or a number of each query: a row vector, or one row of numbers where queries are the columns of fragments."""
    tile, is_vector = _registers(arg, scope), name in ("lse", "delta", "d_lse")
    by_column = family_of(scope.kernel).columns is Axis.ROW
    fits = (
        (tile.rows == 1 if by_column else tile.cols is None) if is_vector else tile.cols is not None and tile.rows > 1
    )
    if tile.dtype is not DType.F32 or not fits:
        fail("CU209", f"`{name}` of `{region}` is f32, {'a vector' if is_vector else 'a tile'}", arg)


def _operation(stmt: Op, scope: BodyScope) -> None:
    if type(stmt) in TILE_RULES:
        TILE_RULES[type(stmt)](stmt, scope)
    for name in field_names(type(stmt)):
        if name in OPERANDS:
            OPERANDS[name](scope, getattr(stmt, name))


def _zero(stmt: Zero, scope: BodyScope) -> None:
    _registers(stmt.dst, scope)


def _cast(stmt: Cast, scope: BodyScope) -> None:
    dst, src = _registers(stmt.dst, scope), _registers(stmt.src, scope)
    if (dst.rows, dst.cols) != (src.rows, src.cols):
        fail("CU209", f"a cast keeps the shape: {dst} from {src}", stmt.dst)
    if not dst.dtype.is_float or not src.dtype.is_float:
        fail("CU209", f"a cast is between floats: {dst} from {src}", stmt.dst)


def _copy(stmt: CopyAsync, scope: BodyScope) -> None:
    dst, src = _slot(stmt.dst, scope), _view(stmt.src, scope)
    if dst.dtype is not src.dtype or (src.vector and dst.rows != 1):
        fail("CU209", f"a copy keeps the element type: {dst} from {src}", stmt.dst)
    if (src.mapped or src.vector) != (stmt.signal is not None):
        message = (
            "needs `signal=..`, a barrier" if stmt.signal is None else "takes no signal: it joins a cp.async group"
        )
        fail(
            "CU202",
            f"a copy from {'a tensor map' if src.mapped else 'global memory'} {message}",
            stmt.signal or stmt.src,
        )
    if stmt.signal is not None:
        scope.expect(stmt.signal, BarrierSlot())


def _copy_now(stmt: Copy, scope: BodyScope) -> None:
    dst, src = _slot(stmt.dst, scope), _view(stmt.src, scope)
    if dst.dtype is not src.dtype or src.vector or src.mapped:
        fail("CU209", f"threads copy rows of global memory as they are: {dst} from {src}", stmt.dst)


def _store(stmt: Store, scope: BodyScope) -> None:
    dst, src = _view(stmt.dst, scope), _registers(stmt.src, scope)
    if dst.vector != (src.cols is None) or not src.dtype.is_float or not dst.dtype.is_float or dst.mapped:
        fail("CU209", f"{src} cannot be stored to {dst}", stmt.src)
    if stmt.column is not None:
        scope.int(stmt.column)


def _load(stmt: Load, scope: BodyScope) -> None:
    dst, src = _registers(stmt.dst, scope), _view(stmt.src, scope)
    if src.vector != (dst.cols is None) or dst.dtype is not src.dtype or src.mapped:
        fail("CU209", f"{dst} cannot be loaded from {src}", stmt.dst)
    if stmt.past_end is not None:
        scope.expect(stmt.past_end, FLOAT)


def _dot_rows(stmt: DotRows, scope: BodyScope) -> None:
    dst, a, b = _registers(stmt.dst, scope), _view(stmt.a, scope), _view(stmt.b, scope)
    if dst.cols is not None or dst.dtype is not DType.F32 or a != b or a.vector or a.mapped:
        fail("CU209", f"a product of rows is an f32 vector of two views of rows: {dst} from {a} and {b}", stmt.dst)


def _clear(stmt: Clear, scope: BodyScope) -> None:
    if _view(stmt.dst, scope).mapped:
        fail("CU202", "this cannot be written to", stmt.dst)


def _scale(stmt: Scale, scope: BodyScope) -> None:
    if _registers(stmt.dst, scope).dtype is not DType.F32:
        fail("CU209", "what is scaled is f32", stmt.dst)
    scope.expect(stmt.factor, FLOAT)


def _through_shared(stmt: ReadShared | WriteShared, scope: BodyScope) -> None:
    inside, outside = (stmt.src, stmt.dst) if isinstance(stmt, ReadShared) else (stmt.dst, stmt.src)
    slot, tile = _slot(inside, scope), _registers(outside, scope)
    rounds = isinstance(stmt, WriteShared) and tile.dtype is DType.F32 and slot.dtype.is_float
    if (slot.rows, slot.cols) != (tile.rows, tile.cols) or (slot.dtype is not tile.dtype and not rounds):
        fail("CU209", f"{slot} and {tile} are not of one type and shape", outside)


def _reduce(stmt: ReduceAsync, scope: BodyScope) -> None:
    dst, src = _view(stmt.dst, scope), _slot(stmt.src, scope)
    if dst.vector or dst.mapped or dst.dtype is not DType.F32 or src.dtype is not DType.F32:
        fail("CU209", f"f32 tiles are added to f32 views: {src} to {dst}", stmt.src)


def _store_async(stmt: StoreAsync, scope: BodyScope) -> None:
    dst, src = _view(stmt.dst, scope), _slot(stmt.src, scope)
    if not dst.mapped or dst.vector or dst.dtype is not src.dtype:
        fail("CU209", f"a shared tile is stored to a tensor map of its type: {src} to {dst}", stmt.src)


# ---- operands --------------------------------------------------------------------------------------------------------

Rule: TypeAlias = Callable[[BodyScope, Expr], None]


def _constant(low: int, high: int, unit: int = 1, what: str = "") -> Rule:
    """A compile-time integer in low..high, a multiple of `unit`."""

    def check(scope: BodyScope, expr: Expr) -> None:
        value = constant_int(scope.kernel, expr)
        if not low <= value <= high:
            fail("CU207", f"{value} is outside of {low}..{high}", expr)
        if value % unit:
            fail("CU207", what, expr)

    return check


def _counters(scope: BodyScope, expr: Expr) -> None:
    match expr:
        case Attr(Name("p"), name) if any(f.name == name and isinstance(f.type, Counters) for f in scope.kernel.params):
            return
        case _:
            fail("CU202", "this must be counters, `p.NAME`", expr)


OPERANDS: Final[Mapping[str, Rule]] = {
    "barrier": lambda scope, expr: scope.expect(expr, BarrierSlot()),
    "ring": lambda scope, expr: scope.expect(expr, Handle.RING),
    "counters": _counters,
    **dict.fromkeys(("row", "bytes", "phase", "id"), BodyScope.int),
    "pending": _constant(0, 7),
    "arrivals": _constant(1, 2**20 - 1),
    "threads": _constant(32, 1024, 32, "a named barrier counts whole warps"),
    "count": _constant(24, 256, 8, "a register count is a multiple of 8"),
}
"""What an operation takes, by the name of the field."""

TILE_RULES: Final[Mapping[type[Op], Callable[..., None]]] = {
    Zero: _zero,
    Cast: _cast,
    CopyAsync: _copy,
    Copy: _copy_now,
    Store: _store,
    Load: _load,
    DotRows: _dot_rows,
    Clear: _clear,
    Scale: _scale,
    ReadShared: _through_shared,
    WriteShared: _through_shared,
    ReduceAsync: _reduce,
    StoreAsync: _store_async,
}
"""Operations on tiles, whose operands must fit each other."""
