"""What operands of statements stand for in an engine: numbers, perhaps one per thread; slots of shared memory; views; rings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.nodes import Expr, Node

Value: TypeAlias = Any
"""What an expression may give: a number, a Lanes, an array over many blocks, an opaque record of an engine."""


class Lanes:
    """One value per thread of an agent. `mask` has a bit for each thread whose value is true."""

    __slots__ = ("mask", "values")

    def __init__(self, values: Iterable[Value]) -> None:
        self.values = tuple(values)
        self.mask = sum(1 << x for x, value in enumerate(self.values) if value)


def lanes_or_one(values: Iterable[Value]) -> Value:
    """The values of all threads, as one value where they agree."""
    result = tuple(values)
    return result[0] if all(v == result[0] for v in result) else Lanes(result)


@dataclass(frozen=True, slots=True)
class SharedRef:
    """A slot of a shared object, where it is named as an operand. `window`: the rows or columns of it that are meant, if not all:
    which of the two, the first, and how many."""

    name: str
    slot: int
    node: Expr
    window: tuple[str, int, int] | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.slot

    def __str__(self) -> str:
        return f"smem.{self.name}[{self.slot}]"


@dataclass(frozen=True, slots=True)
class GlobalRef:
    """A parameter that stands for global memory, or its view at `indices`."""

    name: str
    indices: tuple[Value, ...]
    node: Expr


class Ring:
    """Slot and phase of a ring of `size` slots."""

    __slots__ = ("phase", "size", "slot")

    def __init__(self, size: int) -> None:
        self.size = size
        self.slot = 0
        self.phase = 0

    def next(self) -> None:
        self.slot += 1
        if self.slot == self.size:
            self.slot = 0
            self.phase ^= 1


def fault(code: str, message: str, node: Node, *notes: Note, help: str | None = None) -> CuError:
    """The error that names `node`."""
    return CuError(Diagnostic(code, message, node.span, notes, help))
