"""A trace: what one block of a launch did, instruction by instruction, as a machine records it. It knows no instruction.

Addresses are generic: a tensor's lie in its window, those of shared memory begin at 0, those of parameters too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from cubridge.ir.source import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LANES: Final = 32


@dataclass(frozen=True, slots=True)
class Register:
    """Of 32 lanes. `bytes`: of a lane, 0 for a predicate; predicates are numbered by themselves."""

    index: int
    bytes: int
    negated: bool = False

    @property
    def key(self) -> tuple[bool, int]:
        return self.bytes == 0, self.index


@dataclass(frozen=True, slots=True)
class Number:
    """As bits."""

    bits: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Special:
    """A register that the machine fills, such as %tid.x."""

    name: str


Scalar: TypeAlias = Register | Number | Special


@dataclass(frozen=True, slots=True)
class Address:
    """What an instruction moves from or to."""

    base: Scalar
    offset: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One instruction of the program. `target`: where a branch goes, -1 for all else. A result of None is wanted by nobody.
    `span`: its line of the kernel text."""

    name: str
    guard: Register | None
    results: tuple[Register | None, ...]
    sources: tuple[Scalar | Address, ...]
    target: int
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """One operation as one warp took it. `mask`: its lanes; of a branch, those that were there, and `taken` those that took it.
    `addresses`: a row of lanes for each address among the sources; `results`: a row for each result, or a mask of a predicate."""

    at: int
    warp: int
    mask: int
    addresses: NDArray[np.uint64] = field(repr=False)
    results: tuple[NDArray[np.uint64] | int, ...] = field(repr=False)
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Where a tensor lies."""

    name: str
    base: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Trace:
    """`steps` are in an order in which they may have happened. `block`: its coordinates; `specials`: the numbers that special
    registers have in every thread, such as %ntid.x."""

    code: tuple[Operation, ...] = field(repr=False)
    steps: Sequence[Step] = field(repr=False)
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    windows: tuple[Window, ...]

    @property
    def warps(self) -> int:
        return -(-self.threads[0] * self.threads[1] * self.threads[2] // LANES)
