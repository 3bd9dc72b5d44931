"""A program as the arrays that the native machine runs: each instruction finds its row, each operand its register.

Numbers and special registers become registers that are filled before a block starts: an instruction knows registers alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from cubridge.backend.ptx.program import (
    AddressOf,
    Group,
    Instruction,
    Memory,
    Operand,
    Program,
    Reg,
    Scalar,
    Sink,
    Space,
    Special,
    Value,
)  # fmt: skip
from cubridge.backend.ptx.table import Row, Table, Token
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.source import SourceFile, Span

_HINTS: Final = re.compile(
    r"(?<=^bra)\.uni$|(?<=^ret)\.uni$|\.(?:L1::\w+|L2::(?!global\b|evict\w*\.b64)\w+|level::\w+)(?=\.|$)"
)
"""Modifiers that change neither a value nor an order."""
_CACHE: Final = re.compile(r"(?P<access>^(?:ld|st)(?:\.global)?(?:\.nc)?)\.(?:ca|cg|cs|lu|wb|wt)(?=\.)")
"""Which caches a weak access goes through: to the memory model, nothing."""
_PARAMETER: Final = re.compile(r"(?<=^ld|^st)\.param(?:::func)?(?=\.)")
_POLICY: Final = ".L2::cache_hint"
_RANK_SPECIALS: Final = {
    "%tid.x": 1, "%tid.y": 2, "%tid.z": 3, "%ctaid.x": 4, "%ctaid.y": 5, "%ctaid.z": 6, "%laneid": 7, "%warpid": 8,
    "%cluster_ctarank": 9, "%cluster_ctaid.x": 9, "%clusterid.x": 10, "%clusterid.y": 11, "%clusterid.z": 12,
}  # fmt: skip
_SIZE_SPECIALS: Final = {
    "%ntid.x": 20, "%ntid.y": 21, "%ntid.z": 22, "%nctaid.x": 23, "%nctaid.y": 24, "%nctaid.z": 25, "%cluster_nctarank": 26,
    "%cluster_nctaid.x": 26, "%dynamic_smem_size": 27, "%cluster_ctaid.y": 28, "%cluster_ctaid.z": 28,
    "%cluster_nctaid.y": 29, "%cluster_nctaid.z": 29, "%smid": 28,
}  # fmt: skip
SPECIALS: Final[Mapping[str, int]] = {**_RANK_SPECIALS, **_SIZE_SPECIALS}
"""Numbers of ConstantKind in run_block.cpp."""
_DATA_WINDOW: Final = 4 << 56


@dataclass(frozen=True, slots=True)
class Slot:
    """An operand of the machine: a register (or predicate, where `bytes` is 0), and what is added to an address."""

    slot: int
    offset: int
    bytes: int
    negated: bool = False
    is_address: bool = False


@dataclass(frozen=True, slots=True)
class Encoded:
    """`row`: index in the table. Results come first in `slots`."""

    row: int
    guard: int
    negated: bool
    target: int
    slots: tuple[Slot, ...]
    results: int


@dataclass(slots=True)
class Constants:
    """Registers behind the program's own: one per width, kind and value."""

    widths: list[int]
    found: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])
    sinks: dict[int, int] = field(default_factory=dict[int, int])

    def slot(self, width: int, kind: int, value: int) -> int:
        key = (width, kind, value & (1 << 8 * width) - 1)
        if key not in self.found:
            self.found[key] = len(self.widths)
            self.widths.append(width)
        return self.found[key]

    def sink(self, width: int) -> int:
        """A register for results that nobody wants."""
        if width not in self.sinks:
            self.sinks[width] = len(self.widths)
            self.widths.append(width)
        return self.sinks[width]


class _MismatchError(Exception):
    """An operand that its row does not take."""


def encode(program: Program, table: Table, files: Mapping[str, SourceFile]) -> tuple[list[Encoded], Constants]:
    """Errors: CU839 for an instruction without a row; CU838 for operands that its row does not take; both at the CUDA line in
    `files` where there is one."""
    constants = Constants(list(program.registers))
    encoder = _Encoder(program, table, constants, files)
    return [encoder.instruction(pc, found) for pc, found in enumerate(program.code)], constants


def row_name(found: Instruction) -> str:
    """The name that an instruction's row has: without hints, with the form of operands that decides between rows."""
    name = _CACHE.sub(r"\g<access>", _HINTS.sub("", found.name))
    if any(
        isinstance(x, Memory) and isinstance(x.base, AddressOf) and x.base.variable.space is Space.LOCAL
        for x in found.operands
    ):
        name = _PARAMETER.sub(".local", name)  # of a call, which lies in memory of its thread
    groups = [len(x.parts) if isinstance(x, Group) else 0 for x in found.operands]
    if name.startswith("mov.b") and len(groups) == 2 and any(groups):
        form, parts = ("pack", groups[1]) if groups[1] else ("unpack", groups[0])
        return f"{name} {form}" if parts == 2 else f"{name} {form}{parts}"
    if name.startswith("wgmma.mma_async") and len(groups) > 1 and groups[1]:
        return f"{name} registers"
    return name


@dataclass(frozen=True, slots=True)
class _Encoder:
    program: Program
    table: Table
    constants: Constants
    files: Mapping[str, SourceFile]

    def instruction(self, pc: int, found: Instruction) -> Encoded:
        name = row_name(found)
        row = self.table.rows.get(name)
        if row is None:
            self._fail(pc, "CU839", f"the emulator has no row for the instruction `{name}`")
        operands = list(found.operands)
        if _POLICY in found.name:
            operands = operands[:-1]
        try:
            slots, results = self._slots(row, operands)
        except _MismatchError as error:
            self._fail(pc, "CU838", f"`{name}` {error}")
        guard = found.guard
        return Encoded(
            row.index,
            -1 if guard is None else guard.index,
            guard is not None and guard.negated,
            found.target,
            slots,
            results,
        )

    def _slots(self, row: Row, operands: list[Operand]) -> tuple[tuple[Slot, ...], int]:
        tokens, given = _wanted_results(row, operands)
        results: list[Slot] = []
        for token in tokens:
            results += self._result(token, _next(given))
        sources: list[Slot] = []
        for token in row.sources:
            if not given and token.optional:
                break
            sources += self._source(token, _next(given))
        if given:
            raise _MismatchError("has more operands than its row takes")
        return (*results, *sources), len(results)

    def _result(self, token: Token, operand: Operand) -> list[Slot]:
        return [self._result_part(token, part) for part in _parts(token, operand)]

    def _result_part(self, token: Token, part: Scalar) -> Slot:
        if isinstance(part, Sink):
            return (
                Slot(-1, 0, 0)
                if token.kind == "p"
                else Slot(self.constants.sink(token.bytes or 8), 0, token.bytes or 8)
            )
        if not isinstance(part, Reg) or part.negated or not token.takes(part.bytes):
            raise _MismatchError("has a result that its row does not give")
        return Slot(part.index, 0, part.bytes)

    def _source(self, token: Token, operand: Operand) -> list[Slot]:
        match token.kind:
            case "A" | "T":
                return self._memory(token, operand)
            case "i":
                if not isinstance(operand, Value):
                    raise _MismatchError("takes a number of the text")
                return [self._scalar(4, operand)]
            case _:
                return [self._source_part(token, part) for part in _parts(token, operand)]

    def _source_part(self, token: Token, part: Scalar) -> Slot:
        if isinstance(part, Reg):
            if not token.takes(part.bytes) or (part.negated and part.bytes):
                raise _MismatchError("has an operand of another width than its row takes")
            return Slot(part.index, 0, part.bytes, part.negated)
        if token.kind == "p" and isinstance(part, Value) and part.float_bytes is None:
            return Slot(self.program.predicates + (part.bits != 0), 0, 0)
        if token.kind == "p":
            raise _MismatchError("takes a predicate")
        return self._scalar(token.bytes or 8, part)

    def _memory(self, token: Token, operand: Operand) -> list[Slot]:
        if not isinstance(operand, Memory):
            raise _MismatchError("takes an address in brackets")
        base = operand.base
        if isinstance(base, Reg):
            if base.bytes == 0:
                raise _MismatchError("takes an address in a register")
            slots = [Slot(base.index, operand.offset, base.bytes, is_address=True)]
        else:
            slots = [replace(self._scalar(8, base), offset=operand.offset, is_address=True)]
        coordinates = operand.coordinates or ()
        if len(coordinates) != token.count_of_coordinates:
            raise _MismatchError("has another number of coordinates than its row takes")
        return slots + [self._source_part(Token("r"), part) for part in coordinates]

    def _scalar(self, width: int, part: Scalar) -> Slot:
        match part:
            case Value(bits, float_bytes):
                if float_bytes is not None and float_bytes != width:
                    raise _MismatchError("has a float of another width than its row takes")
                if not -(1 << 8 * width - 1) <= bits < 1 << 8 * width:
                    raise _MismatchError(f"has a number that is too large for {width} bytes")
                return Slot(self.constants.slot(width, 0, bits), 0, width)
            case Special(name):
                if name not in SPECIALS:
                    raise _MismatchError(f"reads `{name}`, which the emulator does not have")
                return Slot(self.constants.slot(width, SPECIALS[name], 0), 0, width)
            case AddressOf(variable, offset):
                return Slot(
                    self.constants.slot(width, 0, self._address(variable.space, variable.offset) + offset), 0, width
                )
            case _:
                raise _MismatchError("has an operand that is missing")

    def _address(self, space: Space, offset: int) -> int:
        return offset | _DATA_WINDOW if space in (Space.GLOBAL, Space.CONST) else offset

    def _fail(self, pc: int, code: str, message: str) -> NoReturn:
        chain, ptx = cuda_chain(self.program, pc, self.files), self.program.span(pc)
        if not chain:
            raise CuError(Diagnostic(code, message, ptx))
        raise CuError(Diagnostic(code, message, chain[0], (Note("the instruction", ptx),)))


def _wanted_results(row: Row, operands: list[Operand]) -> tuple[tuple[Token, ...], list[Operand]]:
    """The results that an instruction names, and its operands with `a|b` taken apart."""
    if len(row.results) < 2:
        return row.results, list(operands)
    if operands and isinstance(operands[0], Group):
        return row.results, [*operands[0].parts, *operands[1:]]
    return tuple(t for t in row.results if not t.optional), list(operands)


def _next(given: list[Operand]) -> Operand:
    if not given:
        raise _MismatchError("has fewer operands than its row takes")
    return given.pop(0)


def _parts(token: Token, operand: Operand) -> tuple[Scalar, ...]:
    if isinstance(operand, Memory):
        raise _MismatchError("has an address where its row takes a value")
    parts = operand.parts if isinstance(operand, Group) else (operand,)
    if len(parts) != token.count:
        raise _MismatchError(f"has {len(parts)} values in a group where its row takes {token.count}")
    return parts


def cuda_chain(program: Program, pc: int, files: Mapping[str, SourceFile]) -> tuple[Span, ...]:
    """The lines of an instruction that lie in `files`: its own, then those of the calls that it was inlined at."""
    spans: list[Span] = []
    for place in program.places.chain(program.code[pc].place):
        file = _named(place.file, files)
        if file is not None and 0 < place.line <= len(file.line_starts):
            spans.append(Span.whole_line(file, place.line))
    return tuple(spans)


def _named(path: str, files: Mapping[str, SourceFile]) -> SourceFile | None:
    return next((file for name, file in files.items() if path == name or path.endswith("/" + name)), None)
