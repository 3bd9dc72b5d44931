"""A kernel as PTX says it: registers, variables, instructions with resolved operands. Knows no instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from cubridge.backend.ptx.places import Places
from cubridge.ir.source import SourceFile, Span


class Space(Enum):
    """Where a variable lies."""

    GLOBAL = "global"
    CONST = "const"
    SHARED = "shared"
    LOCAL = "local"
    PARAM = "param"


@dataclass(frozen=True, slots=True)
class Variable:
    """`offset`: bytes from the start of its space. `unsized`: the block's dynamic shared memory."""

    name: str
    space: Space
    offset: int
    bytes: int
    unsized: bool = False


@dataclass(frozen=True, slots=True)
class Reg:
    """A register of 32 lanes. `bytes`: 4 or 8 a lane, 0 for a predicate; predicates are numbered by themselves."""

    index: int
    bytes: int
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A number in the text, as bits; `float_bytes` where it was written as the bits of a float of that many."""

    bits: int
    float_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Special:
    """A register that the machine fills, such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class AddressOf:
    """A variable's address in its space."""

    variable: Variable
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that nobody wants."""


Scalar = Reg | Value | Special | AddressOf | Sink


@dataclass(frozen=True, slots=True)
class Group:
    """`{a, b}`, or the two results `a|b`."""

    parts: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """`[base+offset]`, or `[base, {coordinates}]` of a tensor."""

    base: Scalar
    offset: int = 0
    coordinates: tuple[Scalar, ...] | None = None


Operand = Scalar | Group | Memory


@dataclass(frozen=True, slots=True)
class Instruction:
    """`target`: where a branch goes, else -1. `start`, `end`: bytes of the text. `place`: index into Program.places, or -1."""

    name: str
    guard: Reg | None
    operands: tuple[Operand, ...]
    target: int
    start: int
    end: int
    place: int


@dataclass(frozen=True, slots=True)
class Program:
    """One entry function. Sizes in bytes; `registers`: bytes a lane of each; `threads`: of a block, if the text says how many."""

    source: SourceFile = field(repr=False)
    entry: str
    registers: tuple[int, ...] = field(repr=False)
    predicates: int
    code: tuple[Instruction, ...] = field(repr=False)
    variables: Mapping[str, Variable] = field(repr=False)
    data: bytes = field(repr=False)
    param_bytes: int
    shared_bytes: int
    local_bytes: int
    threads: int | None
    places: Places = field(repr=False)

    def span(self, pc: int) -> Span:
        """The text of an instruction."""
        found = self.code[pc]
        return Span(self.source, found.start, found.end)
