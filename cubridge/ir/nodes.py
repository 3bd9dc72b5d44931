"""Every node class of CuIR. Data only: equality is structural, `span` is the place a node came from.

A kernel is a list of typed fields (parameters, shared memory, state), region definitions (the only places where attention
variants differ), and an orchestration body of statements. Names live in five scopes, told apart by prefix:

    p.NAME      a kernel parameter             smem.NAME   shared memory           tile.NAME   a value of the work tile
    row.NAME    the running state of a row     kept.NAME   what is kept of a score
    NAME        a local, an accessor, a size or a constant

Accessors in region code: `i` absolute query row, `j` absolute key index (`kv_start` plus the column), `e` output column,
`tile.h`, `tile.b`. Sizes, known everywhere: B, Hq, Hk, Lq, Lk, D. Named constants: inf, nan, LOG2E, LN2, pi.
Thread coordinates in orchestration: `thread`, `warpgroup`, `consumer`, `block_x`, `block_y`, `block_z`, `grid_x`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import singledispatch
from html import escape
from typing import ClassVar, Final

from cubridge.ir.operations import Effect, Order
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.types import DType

SIZES: Final = ("B", "Hq", "Hk", "Lq", "Lk", "D")
"""Batch, query heads, key heads, query length, key length, head dim."""

NAMED_CONSTANTS: Final[dict[str, float]] = {
    "inf": math.inf,
    "nan": math.nan,
    "LOG2E": math.log2(math.e),
    "LN2": math.log(2.0),
    "pi": math.pi,
}


@dataclass(frozen=True, slots=True)
class Node:
    span: Span = field(default=NOWHERE, kw_only=True, compare=False, repr=False)


# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expr(Node):
    """A pure value. Operators have Python's precedence and meaning (`//` and `%` floor)."""


@dataclass(frozen=True, slots=True)
class BoolLit(Expr):
    value: bool


@dataclass(frozen=True, slots=True)
class IntLit(Expr):
    value: int  # may be negative: `-3` is one literal


@dataclass(frozen=True, slots=True)
class FloatLit(Expr):
    value: float  # finite; infinities and nan are `Name("inf")`, `Name("nan")`


@dataclass(frozen=True, slots=True)
class Name(Expr):
    id: str


@dataclass(frozen=True, slots=True)
class Attr(Expr):
    """`base.name`: a parameter, state field, shared object, or a ring's `slot` and `phase`."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Index(Expr):
    """`base[indices]`: a captured tensor's element, a slot of shared memory, a (batch, head) view of a global tensor."""

    base: Expr
    indices: tuple[Expr, ...]


UNARY_OPS: Final = ("-", "~")
COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")
NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
"""The comparison that holds where another does not, of operands that are no NaN."""

BINARY_OPS: Final = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", *COMPARISONS)


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    op: str  # of UNARY_OPS; `~` is logical not on bool
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    op: str  # of BINARY_OPS; `&` and `|` are logical on bool, `^` is xor
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """`fn(args)`, `fn` a key of `functions.FUNCTIONS` or a region that returns a value."""

    fn: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Argument(Node):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Record(Expr):
    """`KeySequence(lo=.., hi=..)`: named values returned together."""

    name: str
    fields: tuple[Argument, ...]


# ---- field types -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldType(Node):
    """Type of a parameter, a shared object or a state field; written as a call, `Global(bf16, B, Hq, Lq, D)`."""


@dataclass(frozen=True, slots=True)
class Global(FieldType):
    """A tensor in global memory, read or written by tiles; strides are the launch's. `optional`: may be absent."""

    dtype: DType
    shape: tuple[Expr, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TensorMap(FieldType):
    """A tensor in global memory behind a TMA descriptor: `copy_async` from it signals a barrier."""

    dtype: DType
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Scalar(FieldType):
    """A scalar. As a parameter it carries the host expression that the launch evaluates."""

    dtype: DType
    host: Expr | None = None


@dataclass(frozen=True, slots=True)
class Captured(FieldType):
    """A tensor that the reference captures, contiguous with these extents; the last axis is padded to a multiple of `pad`.
    `of`: its name in the reference, where the field has another."""

    dtype: DType
    extents: tuple[Expr, ...]
    pad: int = 1
    of: str | None = None


@dataclass(frozen=True, slots=True)
class TileList(FieldType):
    """Lists of key tiles of `keys` keys, one list for each `rows` query rows of every batch and head in `axes`, in this order. The
    launch makes them on the device, before the kernel, from the mask `keep`: a truth over `i`, `j`, `tile.b`, `tile.h`, `tile.hk`,
    sizes and parameters. A list is [how many tiles, how many of them are masked, tile, tile, ..]: first the tiles that its rows
    see in part, then those that every row sees whole, each from the right. What no row sees is in no list."""

    rows: Expr
    keys: Expr
    keep: Expr
    axes: tuple[Expr, ...]

    HEAD: ClassVar[int] = 2
    """Entries before the first tile."""
    INDICES: ClassVar[tuple[str, str]] = ("i", "j")
    """In `keep`: of what a list is for, and of what its tiles hold."""
    LENGTHS: ClassVar[tuple[str, str]] = ("Lq", "Lk")
    dtype: ClassVar[DType] = DType.I32
    pad: ClassVar[int] = 1

    @property
    def per_list(self) -> Expr:
        """How many rows a list is for."""
        return self.rows

    @property
    def per_tile(self) -> Expr:
        """How many keys a tile of a list has."""
        return self.keys

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Lists, and entries of one."""
        of_lists, of_tiles = map(Name, self.LENGTHS)
        lists: Expr = Call("ceil_div", (of_lists, self.per_list))
        for axis in reversed(self.axes):
            lists = Binary("*", axis, lists)
        return lists, Binary("+", Call("ceil_div", (of_tiles, self.per_tile)), IntLit(self.HEAD))


@dataclass(frozen=True, slots=True)
class QueryTileList(TileList):
    """The same with queries and keys exchanged: lists of query tiles of `rows` rows, one for each `keys` keys. The first of each
    kind is the tile at the place of the keys, or the next one after it; behind the last tile follow those from the left. Key tiles
    then begin at different query tiles. What ends past the last key or row is seen in part."""

    INDICES: ClassVar[tuple[str, str]] = ("j", "i")
    LENGTHS: ClassVar[tuple[str, str]] = ("Lk", "Lq")

    @property
    def per_list(self) -> Expr:
        """How many keys a list is for."""
        return self.keys

    @property
    def per_tile(self) -> Expr:
        """How many rows a tile of a list has."""
        return self.rows


@dataclass(frozen=True, slots=True)
class Counters(FieldType):
    """Integers in global memory for `atomic_add`, zero between launches; `optional`: null where work is dealt statically."""

    count: Expr
    optional: bool = True


@dataclass(frozen=True, slots=True)
class Tile(FieldType):
    """`slots` tiles of shared memory."""

    dtype: DType
    rows: Expr
    cols: Expr
    slots: Expr | None = None
    swizzle: int = 0


@dataclass(frozen=True, slots=True)
class SharedValue(FieldType):
    """One scalar in shared memory."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Barrier(FieldType):
    """`slots` mbarriers; arrival counts are set by `init`."""

    slots: Expr | None = None


@dataclass(frozen=True, slots=True)
class Row(FieldType):
    """One value per query row, the same in all lanes that hold the row."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Partial(FieldType):
    """One value per query row and lane: a row sum whose lanes are not yet added."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Element(FieldType):
    """One value per score."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Field(Node):
    name: str
    type: FieldType
    fixed: bool = True
    """False for a parameter inside the kernel's `params` region, which a pass may add, change or drop."""


# ---- statements ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stmt(Node):
    pass


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    """`target = value`; target is a Name, `row.x`, `tile.x`, `smem.x`. In regions the axes of both sides agree."""

    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """In a region the condition is `any_lane(..)` and skipping must be an exact no-op."""

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for var in range(start, stop)`."""

    var: str
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Loop(Stmt):
    """`while True`, left by `break`."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Break(Stmt):
    pass


@dataclass(frozen=True, slots=True)
class RegisterTile(Stmt):
    """`name = register(dtype, rows, cols)`: a tile over the registers of one team, undefined until written.
    `cols` is None for a row vector."""

    name: str
    dtype: DType
    rows: Expr
    cols: Expr | None = None


@dataclass(frozen=True, slots=True)
class Gemm(Stmt):
    """`dst (+)= a @ b` (`b.T` if `transposed`, `a.T` if `a_transposed`), fp32 accumulation. `asynchronous`: dst is poisoned and
    register operands are frozen until the `wgmma_wait` of its group. Without `accumulate` dst is overwritten."""

    dst: Expr
    a: Expr
    b: Expr
    transposed: bool
    accumulate: bool
    asynchronous: bool
    a_transposed: bool = False


@dataclass(frozen=True, slots=True)
class RegionCall(Stmt):
    """A call of a region that returns nothing: `score(s, kv_start, tile)`, `row_probs(s, row, r, kv_start, tile)`."""

    region: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Op(Stmt):
    """Base of the statements written as one call, `op(args)`: fields are the arguments in order, those in `keywords` by name.
    A subclass is the row of its operation: all that parser, printer and static rules need to know of it."""

    op: ClassVar[str]
    keywords: ClassVar[tuple[str, ...]] = ()
    effect: ClassVar[Effect]


@dataclass(frozen=True, slots=True)
class Zero(Op):
    """`dst` becomes zeros."""

    op: ClassVar[str] = "zero"
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("registers",))
    dst: Expr


@dataclass(frozen=True, slots=True)
class Cast(Op):
    """Register tile `dst` becomes `src` in dst's element type."""

    op: ClassVar[str] = "cast"
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("registers",))
    dst: Expr
    src: Expr


@dataclass(frozen=True, slots=True)
class CopyAsync(Op):
    """Start copying rows [row, row + rows of dst) of the view `src` (`p.k[tile.b, tile.hk]`); rows past the end become 0.
    With `signal` (TMA) its bytes complete on that barrier, else it joins the open cp.async group. Of a view with one number a row,
    `dst` is one row of numbers, and the view goes on to the last of them."""

    op: ClassVar[str] = "copy_async"
    keywords: ClassVar[tuple[str, ...]] = ("row", "signal")
    effect: ClassVar[Effect] = Effect(writes=("dst", "signal"), needs=("copies",), order=Order.MEMORY)
    dst: Expr
    src: Expr
    row: Expr
    signal: Expr | None = None


@dataclass(frozen=True, slots=True)
class Copy(Op):
    """The threads of the block themselves copy rows [row, row + rows of dst) of the view `src`; rows past the end become 0. Others
    see it after a barrier."""

    op: ClassVar[str] = "copy"
    keywords: ClassVar[tuple[str, ...]] = ("row",)
    effect: ClassVar[Effect] = Effect(writes=("dst",), order=Order.MEMORY)
    dst: Expr
    src: Expr
    row: Expr


@dataclass(frozen=True, slots=True)
class Store(Op):
    """Rows of register tile or row vector `src` to view `dst` from `row` on, cast to its type; rows past the end are dropped.
    `column`: its first column there, where it has not all of them."""

    op: ClassVar[str] = "store"
    keywords: ClassVar[tuple[str, ...]] = ("row", "src", "column")
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("registers",))
    dst: Expr
    row: Expr
    src: Expr
    column: Expr | None = None


@dataclass(frozen=True, slots=True)
class Load(Op):
    """Register tile or row vector `dst` becomes rows of view `src` from `row` on; those past the end become `past_end`."""

    op: ClassVar[str] = "load"
    keywords: ClassVar[tuple[str, ...]] = ("row", "past_end")
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("registers",))
    dst: Expr
    src: Expr
    row: Expr
    past_end: Expr | None = None


@dataclass(frozen=True, slots=True)
class DotRows(Op):
    """Row vector `dst` becomes the sum over columns of rows of view `a` from `row` on times those of `b`; 0 past the end."""

    op: ClassVar[str] = "dot_rows"
    keywords: ClassVar[tuple[str, ...]] = ("row",)
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("registers",))
    dst: Expr
    a: Expr
    b: Expr
    row: Expr


@dataclass(frozen=True, slots=True)
class Clear(Op):
    """The team makes all of view `dst` zeros."""

    op: ClassVar[str] = "clear"
    effect: ClassVar[Effect] = Effect(writes=("dst",))
    dst: Expr


@dataclass(frozen=True, slots=True)
class Scale(Op):
    """Every element of register tile `dst` is multiplied by `factor`."""

    op: ClassVar[str] = "scale"
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("registers",))
    dst: Expr
    factor: Expr


@dataclass(frozen=True, slots=True)
class ReadShared(Op):
    """Register tile `dst` becomes what shared tile `src` holds, read by each thread for itself."""

    op: ClassVar[str] = "read_shared"
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("registers",), order=Order.MEMORY)
    dst: Expr
    src: Expr


@dataclass(frozen=True, slots=True)
class WriteShared(Op):
    """Shared tile `dst`, or rows of one, becomes register tile `src`, cast to its type, written by each thread for itself: wgmma
    and bulk copies see it after an `async_proxy_fence` of each and a meeting."""

    op: ClassVar[str] = "write_shared"
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("registers",), order=Order.MEMORY)
    dst: Expr
    src: Expr


@dataclass(frozen=True, slots=True)
class AsyncProxyFence(Op):
    """Orders this thread's earlier writes of shared memory before asynchronous reads (wgmma, bulk copies) of who meets it next."""

    op: ClassVar[str] = "async_proxy_fence"
    effect: ClassVar[Effect] = Effect(order=Order.MEMORY | Order.RELEASE)


@dataclass(frozen=True, slots=True)
class ReduceAsync(Op):
    """One thread starts adding shared tile `src` to the view `dst`; joins its open bulk group, which reads `src` until its wait."""

    op: ClassVar[str] = "reduce_async"
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("bulk copies",), order=Order.MEMORY)
    dst: Expr
    src: Expr


@dataclass(frozen=True, slots=True)
class StoreAsync(Op):
    """One thread starts storing shared tile `src` to rows [row, row + rows of src) of the view `dst` of a tensor map; rows past the
    end are dropped. Joins its open bulk group, which reads `src` until its wait."""

    op: ClassVar[str] = "store_async"
    keywords: ClassVar[tuple[str, ...]] = ("row", "src")
    effect: ClassVar[Effect] = Effect(writes=("dst",), needs=("bulk copies",), order=Order.MEMORY)
    dst: Expr
    row: Expr
    src: Expr


@dataclass(frozen=True, slots=True)
class BulkCommit(Op):
    """Close the open bulk group of this thread."""

    op: ClassVar[str] = "bulk_commit"
    effect: ClassVar[Effect] = Effect(changes=("bulk copies",))


@dataclass(frozen=True, slots=True)
class BulkWaitRead(Op):
    """Wait until at most `pending` bulk groups of this thread still read shared memory."""

    op: ClassVar[str] = "bulk_wait_read"
    effect: ClassVar[Effect] = Effect(changes=("bulk copies",), order=Order.ACQUIRE)
    pending: Expr


@dataclass(frozen=True, slots=True)
class CpAsyncCommit(Op):
    """Close the open cp.async group (may be empty)."""

    op: ClassVar[str] = "commit"
    effect: ClassVar[Effect] = Effect(changes=("copies",))


@dataclass(frozen=True, slots=True)
class CpAsyncWait(Op):
    """Wait until at most `pending` cp.async groups of this thread are in flight."""

    op: ClassVar[str] = "wait_group"
    effect: ClassVar[Effect] = Effect(changes=("copies",), order=Order.ACQUIRE)
    pending: Expr


@dataclass(frozen=True, slots=True)
class BlockSync(Op):
    """All threads of the block meet."""

    op: ClassVar[str] = "block_sync"
    effect: ClassVar[Effect] = Effect(order=Order.ACQUIRE | Order.RELEASE)


@dataclass(frozen=True, slots=True)
class WgmmaFence(Op):
    """Orders register writes before the wgmma operations that read or accumulate into them."""

    op: ClassVar[str] = "wgmma_fence"
    effect: ClassVar[Effect] = Effect(changes=("registers", "wgmma"))


@dataclass(frozen=True, slots=True)
class WgmmaCommit(Op):
    """Close the open wgmma group of this warpgroup."""

    op: ClassVar[str] = "wgmma_commit"
    effect: ClassVar[Effect] = Effect(changes=("wgmma",))


@dataclass(frozen=True, slots=True)
class WgmmaWait(Op):
    """Wait until at most `pending` wgmma groups of this warpgroup are in flight."""

    op: ClassVar[str] = "wgmma_wait"
    effect: ClassVar[Effect] = Effect(changes=("registers", "wgmma"), order=Order.ACQUIRE)
    pending: Expr


@dataclass(frozen=True, slots=True)
class BarrierInit(Op):
    """One thread sets the number of arrivals that complete a phase of `barrier`."""

    op: ClassVar[str] = "barrier_init"
    effect: ClassVar[Effect] = Effect(writes=("barrier",), needs=("initialisation",), order=Order.MEMORY)
    barrier: Expr
    arrivals: Expr


@dataclass(frozen=True, slots=True)
class BarrierInitFence(Op):
    """Makes barrier initialisation visible to the async proxy."""

    op: ClassVar[str] = "barrier_init_fence"
    effect: ClassVar[Effect] = Effect(changes=("initialisation",), order=Order.MEMORY)


@dataclass(frozen=True, slots=True)
class BarrierExpect(Op):
    """Arrive once and expect `bytes` of asynchronous copies in this phase."""

    op: ClassVar[str] = "barrier_expect"
    effect: ClassVar[Effect] = Effect(writes=("barrier",), order=Order.RELEASE)
    barrier: Expr
    bytes: Expr


@dataclass(frozen=True, slots=True)
class BarrierArrive(Op):
    """Every active thread arrives once."""

    op: ClassVar[str] = "barrier_arrive"
    effect: ClassVar[Effect] = Effect(writes=("barrier",), order=Order.RELEASE)
    barrier: Expr


@dataclass(frozen=True, slots=True)
class BarrierWait(Op):
    """Wait until the phase of parity `phase` has completed."""

    op: ClassVar[str] = "barrier_wait"
    effect: ClassVar[Effect] = Effect(order=Order.ACQUIRE)
    barrier: Expr
    phase: Expr


@dataclass(frozen=True, slots=True)
class NamedSync(Op):
    """Arrive at a named barrier and wait until `threads` have."""

    op: ClassVar[str] = "named_sync"
    effect: ClassVar[Effect] = Effect(order=Order.ACQUIRE | Order.RELEASE)
    id: Expr
    threads: Expr


@dataclass(frozen=True, slots=True)
class NamedArrive(Op):
    """Arrive at a named barrier without waiting."""

    op: ClassVar[str] = "named_arrive"
    effect: ClassVar[Effect] = Effect(order=Order.RELEASE)
    id: Expr
    threads: Expr


@dataclass(frozen=True, slots=True)
class RingNext(Op):
    """Step a ring `Ring(n)` (fields `slot`, `phase`, both 0 at first): the phase flips when the slot wraps to 0."""

    op: ClassVar[str] = "ring_next"
    effect: ClassVar[Effect] = Effect(writes=("ring",))
    ring: Expr


@dataclass(frozen=True, slots=True)
class RegistersRelease(Op):
    """Lower the register count of this warpgroup's threads to `count`."""

    op: ClassVar[str] = "registers_release"
    effect: ClassVar[Effect] = Effect(changes=("register budget",))
    count: Expr


@dataclass(frozen=True, slots=True)
class RegistersTake(Op):
    """Raise the register count of this warpgroup's threads to `count`, once that many are free."""

    op: ClassVar[str] = "registers_take"
    effect: ClassVar[Effect] = Effect(changes=("register budget",))
    count: Expr


@dataclass(frozen=True, slots=True)
class FinishCounters(Op):
    """The last block to finish leaves the scheduler's counters at zero."""

    op: ClassVar[str] = "finish_counters"
    effect: ClassVar[Effect] = Effect(writes=("counters",))
    counters: Expr


OPS: Final[dict[str, type[Op]]] = {
    c.op: c
    for c in (
        Zero, Cast, CopyAsync, Copy, Store, Load, DotRows, Clear, Scale, ReadShared, WriteShared, AsyncProxyFence, ReduceAsync,
        StoreAsync, BulkCommit, BulkWaitRead, CpAsyncCommit, CpAsyncWait, BlockSync, WgmmaFence, WgmmaCommit, WgmmaWait,
        BarrierInit, BarrierInitFence, BarrierExpect, BarrierArrive, BarrierWait, NamedSync, NamedArrive, RingNext,
        RegistersRelease, RegistersTake, FinishCounters,
    )
}  # fmt: skip


# ---- kernels ---------------------------------------------------------------------------------------------------------

REGIONS: Final[dict[str, tuple[str, ...]]] = {
    "tile_setup": ("tile",),
    "key_sequence": ("tile",),
    "key_count": ("keys",),
    "key_tile": ("keys", "t"),
    "key_masked": ("keys", "t"),
    "score": ("s", "kv_start", "tile"),
    "mask": ("s", "kv_start", "tile"),
    "row_init": ("row", "tile"),
    "row_update": ("s", "row", "kv_start", "tile"),
    "row_probs": ("s", "row", "r", "kv_start", "tile"),
    "row_rescale": ("o", "row", "tile"),
    "row_finalize": ("o", "lse", "row", "tile"),
}
"""Region functions with their arguments, in the order in which a kernel defines them. `key_sequence`, `key_count`, `key_tile`
and `key_masked` make up the source region `kv_range`. `row_probs` acts on fragment rows r: rows with (row // 8) % ROWS == r."""

TILE_ARGUMENTS: Final = ("s", "o", "lse")
"""Arguments of regions that are fragments of a tile or of a row vector; what is assigned to them goes back to the caller."""


@dataclass(frozen=True, slots=True)
class Function(Node):
    """A region, or `work_tile`: a flat body, and the value it returns if any."""

    name: str
    params: tuple[str, ...]
    body: tuple[Stmt, ...]
    result: Expr | None = None


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A compile-time constant of this instantiation."""

    name: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Kernel(Node):
    """One instantiation of an attention kernel.

    `team`: who shares a register tile, "block" or "warpgroup". `row_origin`: first row, within the work tile, of the team's
    register tiles. `schedule`: the function `work_tile`, from block coordinates or a work index to a work tile. `family`: its job,
    of `families.FAMILIES`. `score_state`: what a backward kernel keeps of its scores."""

    name: str
    arch: str
    threads: Expr
    team: str
    row_origin: Expr
    constants: tuple[Constant, ...]
    params: tuple[Field, ...]
    shared: tuple[Field, ...]
    tile_state: tuple[Field, ...]
    row_state: tuple[Field, ...]
    regions: tuple[Function, ...]
    schedule: Function
    body: tuple[Stmt, ...]
    family: str = "forward"
    score_state: tuple[Field, ...] = ()

    def __str__(self) -> str:
        """Its CuIR text."""
        return text_of(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    def region(self, name: str) -> Function:
        return next(r for r in self.regions if r.name == name)

    def constant(self, name: str) -> int | float:
        return next(c.value for c in self.constants if c.name == name)

    @property
    def constant_values(self) -> dict[str, int | float]:
        return {c.name: c.value for c in self.constants}


@singledispatch
def text_of(node: object) -> str:
    """The text of a node: `printer.py`, which stands above the nodes, says what it is."""
    return repr(node)


CUIR_VERSION: Final = 1
