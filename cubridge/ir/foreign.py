"""What must be said of a kernel that is written in no dialect of ours, so that it can be launched and its runs read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cubridge.ir.contract import ElementType, Role
from cubridge.ir.nodes import Expr
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.spec import Shape
from cubridge.ir.types import DType


@dataclass(frozen=True, slots=True)
class ForeignTensor:
    """A tensor of the call, contiguous. `role` and `element` as in a launch contract."""

    name: str
    role: Role
    element: ElementType
    shape: tuple[Expr, ...]


class ParameterKind(StrEnum):
    """The first word of what a contract says of a parameter."""

    TENSOR = "tensor"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    BOOL = "bool"

    @property
    def bytes(self) -> int:
        return 8 if self in (ParameterKind.TENSOR, ParameterKind.LONG) else 1 if self is ParameterKind.BOOL else 4


@dataclass(frozen=True, slots=True)
class ForeignParameter:
    """A parameter of the entry, or a field of one. `name`: as the text reaches it, `params.inner.rows`; `value`: the tensor's name,
    or an expression that the host evaluates."""

    name: str
    kind: ParameterKind
    value: str | Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def last(self) -> str:
        """Its name without that of the structure."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class ForeignStruct:
    """A parameter that is a structure. Fields that are not named here are zero."""

    name: str
    type: str
    fields: tuple[ForeignParameter, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ForeignContract:
    """`entry`: a name, or a name expression of a template. `headers`: folders of headers that stand in for others; `shapes`: of the
    runs that are read; `parameters`: of the entry, in their order."""

    entry: str
    arch: str
    dtype: DType
    head_dim: int
    options: tuple[str, ...]
    include: tuple[str, ...]
    headers: tuple[Path, ...]
    standard_headers: bool
    grid: tuple[Expr, Expr, Expr]
    threads: int
    shared_bytes: int
    tensors: tuple[ForeignTensor, ...]
    parameters: tuple[ForeignParameter | ForeignStruct, ...]
    shapes: tuple[Shape, ...]
    places: Mapping[str, Span] = field(default_factory=dict[str, Span], compare=False, repr=False)

    @property
    def values(self) -> tuple[ForeignParameter, ...]:
        """All that has a value: parameters, and the fields of those that are structures."""
        return tuple(v for p in self.parameters for v in (p.fields if isinstance(p, ForeignStruct) else (p,)))

    def tensor(self, name: str) -> ForeignTensor:
        return next(t for t in self.tensors if t.name == name)

    def place(self, key: str) -> Span:
        return self.places.get(key, NOWHERE)
