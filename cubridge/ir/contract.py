"""The launch contract: what a runtime must know to instantiate, fill and launch a kernel, so that it knows none by name.

The contract is data beside the kernel (a TOML file) plus the fields of the kernel's own `Params` struct, whose comments say what
the host puts there. Expressions are CuIR over the sizes B, Hq, Hk, Lq, Lk, D, the macros of the instantiation, scalar captures,
and the device's SM_COUNT and L2_BYTES; all are evaluated at launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Final

from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import SIZES, Binary, Call, Expr, IntLit, Name, TileList
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.types import DType

KEY_PADDING: Final = 128
"""Elements to which the last axis of a per-key table is padded: whole key tiles, whichever tile size an instantiation has."""


class CType(StrEnum):
    """Types that a field of `Params` may have; the value is the C spelling without `const`."""

    TENSOR_MAP = "TensorMap"
    HALF_POINTER = "half_t*"
    FLOAT_POINTER = "float*"
    INT_POINTER = "int*"
    SHORT_POINTER = "short*"
    I64 = "i64"
    INT = "int"
    FLOAT = "float"

    @property
    def bytes(self) -> int:
        return _C_LAYOUT[self][0]

    @property
    def alignment(self) -> int:
        return _C_LAYOUT[self][1]

    @property
    def is_pointer(self) -> bool:
        return self in (CType.HALF_POINTER, CType.FLOAT_POINTER, CType.INT_POINTER, CType.SHORT_POINTER)


_C_LAYOUT = {
    CType.TENSOR_MAP: (128, 64),
    CType.HALF_POINTER: (8, 8),
    CType.FLOAT_POINTER: (8, 8),
    CType.INT_POINTER: (8, 8),
    CType.SHORT_POINTER: (8, 8),
    CType.I64: (8, 8),
    CType.INT: (4, 4),
    CType.FLOAT: (4, 4),
}
"""Bytes and alignment, alike for the device compiler and every 64-bit host."""


# ---- what the host puts into a field ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """`@tensor NAME`: address of the first element; null where an optional tensor is absent."""

    tensor: str


@dataclass(frozen=True, slots=True)
class TensorStride:
    """`@stride NAME AXIS`: stride of a tensor along an axis, in elements."""

    tensor: str
    axis: int


@dataclass(frozen=True, slots=True)
class MapOfTensor:
    """`@tensor_map NAME`: the TMA descriptor that the contract names so."""

    name: str


@dataclass(frozen=True, slots=True)
class HostValue:
    """`@host EXPR`: a scalar computed at launch."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class CapturedAddress:
    """`@captured NAME[EXTENTS] pad N`: address of a contiguous copy of a captured tensor with these extents; the last axis is
    padded to a multiple of N elements. Elements are what the field points to, float or int."""

    name: str
    extents: tuple[Expr, ...]
    pad: int = 1


@dataclass(frozen=True, slots=True)
class TileListAddress:
    """`@tiles [AXES] ROWS x KEYS where KEEP`: address of lists of key tiles that are made before the launch, as `TileList` says;
    entries are of 16 bits. `made`: the kernel of this contract makes them."""

    kind: TileList
    made: bool = False


@dataclass(frozen=True, slots=True)
class CounterAddress:
    """`@counters N`: address of N ints that are zero at launch and that the kernel leaves zero. Null where every work tile visits
    equally many key tiles, so that equal shares are best. No two launches that may overlap share them."""

    count: int


@dataclass(frozen=True, slots=True)
class Unread:
    """Nothing: another kernel reads this field of the same `Params`."""


FieldValue = (
    TensorAddress | TensorStride | MapOfTensor | HostValue | CapturedAddress | TileListAddress | CounterAddress | Unread
)


@dataclass(frozen=True, slots=True)
class ParamField:
    """One field of `Params`, in the order of the struct. `patched`: it lies inside the region `params`."""

    name: str
    c_type: CType
    value: FieldValue
    patched: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def size(self) -> str | None:
        """The size that the field is, as in `int len_kv;  // @host Lk`; None for any other field."""
        match self.value:
            case HostValue(Name(name)) if name in SIZES:
                return name
            case _:
                return None


# ---- the rest of the contract ----------------------------------------------------------------------------------------


class Role(StrEnum):
    INPUT = "input"
    OUTPUT = "output"
    SUM = "sum"
    """Read and written: the kernel adds to what it holds."""


class ElementType(StrEnum):
    """Element type of a tensor argument; `half` is the dtype of the instantiation."""

    HALF = "half"
    F32 = "f32"


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor of the call. The last axis is contiguous; other strides are free, multiples of `align_bytes` like the address,
    unless `contiguous` asks for all of them."""

    name: str
    role: Role
    element: ElementType
    shape: tuple[Expr, ...]
    optional: bool = False
    contiguous: bool = False
    align_bytes: int = 16
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """A TMA descriptor: the tensor with its axes innermost first, boxes of `box` elements (columns, rows, 1, ...)."""

    name: str
    tensor: str
    box: tuple[Expr, ...]
    swizzle_bytes: int
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MacroChoice:
    """`-D NAME=value`: the values to try, in order; the first that compiles without spills is taken."""

    name: str
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Instantiation:
    """One compiled form of a kernel: its element type and the value of every macro, in the order of the contract."""

    dtype: DType
    macros: tuple[tuple[str, int], ...]

    def value(self, name: str) -> int:
        return dict(self.macros)[name]

    @property
    def definitions(self) -> tuple[str, ...]:
        """Compiler options."""
        return tuple(f"-D{name}={value}" for name, value in self.macros)


@dataclass(frozen=True, slots=True)
class LaunchContract:
    """Everything a launch needs. `source` names the kernel text relative to the contract; `include` the header root likewise."""

    entry: str
    source: str
    include: str
    arch: str
    newer_archs: bool
    """True: the text also compiles for every later architecture; False: for `arch` alone (sm_90a)."""
    head_dims: tuple[int, ...]
    dtypes: tuple[tuple[DType, tuple[tuple[str, int], ...]], ...]
    """Element types, each with the macros that select it."""
    macros: tuple[MacroChoice, ...]
    tensors: tuple[TensorArgument, ...]
    tensor_maps: tuple[TensorMapSpec, ...]
    params: tuple[ParamField, ...]
    block: Expr
    grid: Expr
    shared_bytes: Expr
    query_tile: Expr
    key_tile: Expr
    family: str
    """Its job, of `families.FAMILIES`."""
    patchable: tuple[str, ...]
    """Regions that a patch may change."""
    equal_work: bool
    """True where every work tile visits equally many key tiles: region `kv_range` does not read its tile."""
    places: Mapping[str, Span] = field(default_factory=dict[str, Span], compare=False, repr=False)
    """Lines of keys whose values have no place of their own, and of `dtypes.NAME`."""

    def place(self, key: str) -> Span:
        return self.places.get(key, NOWHERE)

    def tensor(self, name: str) -> TensorArgument:
        return next(t for t in self.tensors if t.name == name)

    def tensor_map(self, name: str) -> TensorMapSpec:
        return next(m for m in self.tensor_maps if m.name == name)

    def field(self, name: str) -> ParamField:
        return next(f for f in self.params if f.name == name)

    @property
    def captured(self) -> tuple[ParamField, ...]:
        return tuple(f for f in self.params if isinstance(f.value, CapturedAddress))

    @property
    def tile_lists(self) -> tuple[ParamField, ...]:
        return tuple(f for f in self.params if isinstance(f.value, TileListAddress))


def instantiations(
    contract: LaunchContract, dtype: DType, head_dim: int, fixed: Mapping[str, int] | None = None
) -> tuple[Instantiation, ...]:
    """The forms to try for an element type and head dim, best first; `fixed` overrules macros. No form where the contract does
    not list the dtype or the head dim. Errors: CU301 for a macro formula with names other than D."""
    selecting = dict(contract.dtypes).get(dtype)
    if selecting is None or head_dim not in contract.head_dims:
        return ()
    chosen = fixed or {}
    names = [m.name for m in contract.macros]
    values = [
        (chosen[m.name],) if m.name in chosen else tuple(int(evaluate_number(v, {"D": head_dim})) for v in m.values)
        for m in contract.macros
    ]
    return tuple(Instantiation(dtype, (*zip(names, row, strict=True), *selecting)) for row in product(*values))


def padded_extents(extents: tuple[Expr, ...], pad: int) -> tuple[Expr, ...]:
    """Extents of a captured tensor's copy in memory: the last axis fills whole multiples of `pad`."""
    if pad == 1:
        return extents
    *outer, last = extents
    if isinstance(last, IntLit):
        return (*outer, IntLit(-(-last.value // pad) * pad))
    return (*outer, Binary("*", Call("ceil_div", (last, IntLit(pad))), IntLit(pad)))
