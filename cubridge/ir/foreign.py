"""What must be said of a kernel that is written in no dialect of ours, so that it can be launched and its runs read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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

    @property
    def bytes(self) -> int:
        return 8 if self in (ParameterKind.TENSOR, ParameterKind.LONG) else 4


@dataclass(frozen=True, slots=True)
class ForeignParameter:
    """A parameter of the entry, in the order of the text. `value`: the tensor's name, or an expression that the host evaluates."""

    name: str
    kind: ParameterKind
    value: str | Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ForeignContract:
    """`entry`: a name, or a name expression of a template. `shapes`: of the runs that are read."""

    entry: str
    arch: str
    dtype: DType
    head_dim: int
    options: tuple[str, ...]
    include: tuple[str, ...]
    grid: tuple[Expr, Expr, Expr]
    threads: int
    shared_bytes: int
    tensors: tuple[ForeignTensor, ...]
    parameters: tuple[ForeignParameter, ...]
    shapes: tuple[Shape, ...]
    places: Mapping[str, Span] = field(default_factory=dict[str, Span], compare=False, repr=False)

    def tensor(self, name: str) -> ForeignTensor:
        return next(t for t in self.tensors if t.name == name)

    def place(self, key: str) -> Span:
        return self.places.get(key, NOWHERE)
