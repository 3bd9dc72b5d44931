"""What CUDA names and expressions stand for while a function is lifted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from cubridge.frontend.cuda.syntax import CType
from cubridge.ir.contract import ParamField
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.nodes import Expr, Name
from cubridge.ir.source import Span
from cubridge.ir.types import Axis, DType

OUTSIDE = "CU423"
"""Code of everything that the vocabulary has no meaning for."""

SCALAR_TYPES = {
    "bool": DType.BOOL, "int": DType.I32, "float": DType.F32, "long long": DType.I64, "signed int": DType.I32,
    "long long int": DType.I64, "signed": DType.I32,
}  # fmt: skip
"""C scalar types with a CuIR type. Unsigned ones have none: their arithmetic wraps."""


def refusal(
    message: str, span: Span, code: str = OUTSIDE, help: str | None = None, notes: tuple[Note, ...] = ()
) -> CuError:
    return CuError(Diagnostic(code, message, span, notes, help))


class Poisoned(Exception):
    """Use of a name whose own declaration was refused: already reported."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number per thread, or per element of the loops that surround it: `axes` says which it varies over."""

    expr: Expr
    dtype: DType
    axes: frozenset[Axis] = frozenset()


@dataclass(frozen=True, slots=True)
class LaneIndex:
    """The variable of a dissolving loop: fragment row r or column c."""

    axis: Axis


@dataclass(frozen=True, slots=True)
class Fragment:
    """A register tile or row vector, or a row of one: `dims` are the axes still to subscript, `taken` those already."""

    expr: Expr
    dtype: DType
    dims: tuple[Axis, ...]
    taken: frozenset[Axis] = frozenset()


class Kind(Enum):
    """The structs that a kernel is made of."""

    PARAMS = auto()
    SHARED = auto()
    TILE = auto()
    ROW = auto()
    KEPT = auto()
    KEYS = auto()
    QUERIES = auto()


SCOPE_NAMES = {
    Kind.PARAMS: "p", Kind.SHARED: "smem", Kind.TILE: "tile", Kind.ROW: "row", Kind.KEPT: "kept", Kind.KEYS: "keys",
    Kind.QUERIES: "queries",
}  # fmt: skip
SEQUENCES = {"keys": Kind.KEYS, "queries": Kind.QUERIES}
"""The structs that say what a work tile walks, by the name of their scope."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One of those structs; its fields are CuIR's `p.x`, `smem.x`, `tile.x`, `row.x`, `kept.x`, `keys.x`, `queries.x`."""

    kind: Kind

    @property
    def expr(self) -> Expr:
        return Name(SCOPE_NAMES[self.kind])


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object that only helpers and operations touch: a shared tile, a barrier, a ring, a probability tile. `dims` are array
    extents still to subscript."""

    expr: Expr
    type: CType


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer parameter, plus elements."""

    param: ParamField
    expr: Expr
    type: CType
    offset: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Plumbing:
    """A parameter that CuIR abstracts away, such as a stride: only the helpers that make views take it."""

    param: ParamField


@dataclass(frozen=True, slots=True)
class View:
    """One head of a global tensor, `p.k[tile.b, tile.hk]`."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Address:
    """`&x`, as a generic or a shared address."""

    of: Value


@dataclass(frozen=True, slots=True)
class Fields:
    """A local struct that is filled field by field or by braces; `values` grows."""

    type: str
    values: dict[str, Scalar] = field(default_factory=dict[str, Scalar])


@dataclass(frozen=True, slots=True)
class Built:
    """A call that returns a work tile or a key sequence."""

    kind: Kind
    expr: Expr


@dataclass(slots=True)
class Reference:
    """A name for an object or a view. `stale`: what it is subscripted by has changed since; `uses` counts its reads."""

    value: Value
    uses: int = 0
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """A name whose declaration was refused."""


Value = (
    Scalar
    | LaneIndex
    | Fragment
    | Scope
    | Opaque
    | Pointer
    | Plumbing
    | View
    | Address
    | Fields
    | Built
    | Reference
    | Failed
)


def describe(value: Value) -> str:
    """For messages."""
    match value:
        case Scalar(dtype=dtype):
            return f"a value of type {dtype}"
        case LaneIndex():
            return "the variable of an element loop"
        case Fragment(dims=dims):
            return f"a register tile with {len(dims)} free subscripts"
        case Scope(kind):
            return f"the struct `{SCOPE_NAMES[kind]}`"
        case Opaque(type=kind):
            return f"an object of type `{kind}`"
        case Pointer(param=param) | Plumbing(param=param):
            return f"the parameter `{param.name}`"
        case View():
            return "a view of a global tensor"
        case Address():
            return "an address"
        case Fields(type=name):
            return f"a struct `{name}`"
        case Built(kind=kind):
            return f"a new struct `{SCOPE_NAMES[kind]}`"
        case Reference(value=inner):
            return describe(inner)
        case Failed():
            return "a name that could not be read"


@dataclass(slots=True)
class Names:
    """The C names in scope with what they stand for, and the CuIR names in use. A block is a child of what surrounds it; the body
    of an inlined function sees nothing of its caller, `around`, but must not take its names.
    `by_place`: parameters that stand for a place of the caller."""

    parent: Names | None = None
    around: Names | None = None
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    taken: set[str] = field(default_factory=set[str])
    by_place: set[str] = field(default_factory=set[str])

    def find(self, name: str) -> Value | None:
        scope: Names | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None

    def rebind(self, name: str, value: Value) -> None:
        """Give a name that is in scope another meaning."""
        scope: Names | None = self
        while scope is not None and name not in scope.values:
            scope = scope.parent
        assert scope is not None
        scope.values[name] = value

    def surrounding(self) -> Iterator[Names]:
        """This scope and all around it, callers too."""
        scope: Names | None = self
        while scope is not None:
            yield scope
            scope = scope.parent or scope.around

    def references(self) -> Iterator[Reference]:
        for scope in self.surrounding():
            yield from (v for v in scope.values.values() if isinstance(v, Reference))

    def holds(self, value: Value) -> bool:
        return any(value in scope.values.values() for scope in self.surrounding())

    def is_taken(self, name: str) -> bool:
        return any(name in scope.taken for scope in self.surrounding())

    def fresh(self, name: str) -> str:
        """A CuIR name like `name` that nothing in scope has."""
        candidate, number = name, 2
        while self.is_taken(candidate):
            candidate, number = f"{name}_{number}", number + 1
        self.taken.add(candidate)
        return candidate
