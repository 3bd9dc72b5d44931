"""Launches on the native machine: a program with its memory, one run a schedule."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from cubridge.backend.ptx.encode import Constants, Encoded, cuda_chain, encode
from cubridge.backend.ptx.library import (
    CConstant,
    CInstruction,
    CLaunch,
    CLog,
    CMap,
    COperand,
    CPointer,
    CProgram,
    CTensor,
    library,
)  # fmt: skip
from cubridge.backend.ptx.program import Program
from cubridge.backend.ptx.table import load_table
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.source import NOWHERE, SourceFile, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAID_BYTES: Final = 1 << 14
_MOST_AXES: Final = 5
_REGISTERS_OF_BLOCK: Final = 1 << 16
_CODES: Final = {1: "CU832", 2: "CU833", 3: "CU834", 4: "CU835", 5: "CU836", 6: "CU836", 7: "CU837"}
"""By FaultKind of base.h."""


class Schedule(IntEnum):
    """In which order warps and blocks have their turns, and data lands."""

    FORWARD = 0
    REVERSED = 1
    HOSTILE = 2


class TensorFlags(IntEnum):
    """Of memory.h."""

    INPUT = 0
    OUTPUT = 1
    STARTS_AND_ENDS_ZERO = 2
    MAY_BE_UNKNOWN = 4
    STARTS_AS_IT_IS = 8


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """Global memory of a launch. `data`: its first bytes, NaN where the kernel must not look."""

    name: str
    data: bytes = field(repr=False)
    flags: int
    align: int


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A TMA descriptor at `param_offset` of the parameters; axes innermost first, `strides` in bytes without the innermost."""

    param_offset: int
    tensor: int
    element_bytes: int
    swizzle_bytes: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Blocks, threads of a block, blocks of a cluster, and bytes of dynamic shared memory."""

    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]
    shared_bytes: int
    cluster: int = 1

    @property
    def block_size(self) -> int:
        return self.threads[0] * self.threads[1] * self.threads[2]


@dataclass(frozen=True, slots=True)
class PtxLaunch:
    """`pointers`: offsets in the parameters, and the tensors whose addresses belong there."""

    grid: Grid
    params: bytes = field(repr=False)
    tensors: tuple[TensorMemory, ...]
    pointers: tuple[tuple[int, int], ...] = ()
    maps: tuple[TensorMap, ...] = ()


class Machine:
    """A program, loaded. `files`: the CUDA texts that places are given in, by the names that the compiler used; the first is the
    text itself, whose lines are preferred, or, with `innermost`, no more than others."""

    def __init__(self, program: Program, files: Mapping[str, SourceFile], innermost: bool = False) -> None:
        """Errors: CU830, CU838, CU839."""
        self.program = program
        self.files = files
        self.innermost = innermost
        table = load_table()
        self.encoded, self.constants = encode(program, table, files)
        self._handle = _load(program, self.encoded, self.constants)
        self._free = weakref.finalize(self, library().ptx_free, self._handle)

    def run(self, launch: PtxLaunch, schedule: Schedule, seconds: float) -> tuple[bytes, ...]:
        """The contents of the outputs after one run, in the order of the tensors. Errors: CU832 to CU837."""
        return self._run(launch, schedule, seconds, -1, None)

    def log(self, launch: PtxLaunch, block: int, seconds: float) -> tuple[tuple[bytes, ...], NDArray[np.uint64]]:
        """Besides, what a block did, as native/log.h says. Errors: as `run`."""
        log = CLog()
        outputs = self._run(launch, Schedule.FORWARD, seconds, block, log)
        try:
            return outputs, np.ctypeslib.as_array(log.words, (log.count,)).copy()
        finally:
            library().ptx_free_log(ctypes.byref(log))

    def _run(
        self, launch: PtxLaunch, schedule: Schedule, seconds: float, traced: int, log: CLog | None
    ) -> tuple[bytes, ...]:
        self._check(launch)
        buffers = [ctypes.create_string_buffer(t.data, max(1, len(t.data))) for t in launch.tensors]
        arranged = _arrange(launch, buffers, schedule, seconds, traced)
        said, steps = ctypes.create_string_buffer(_SAID_BYTES), ctypes.c_uint64()
        given = None if log is None else ctypes.byref(log)
        kind = library().ptx_run(
            self._handle, ctypes.byref(arranged.launch), said, _SAID_BYTES, ctypes.byref(steps), given
        )
        if kind != 0:
            raise self._fault(kind, said.value.decode(errors="replace"))
        return tuple(
            ctypes.string_at(buffer, len(t.data))
            for t, buffer in zip(launch.tensors, buffers, strict=True)
            if t.flags & TensorFlags.OUTPUT
        )

    def _check(self, launch: PtxLaunch) -> None:
        """A launch that the kernel is not written for ends here."""
        threads, most = launch.grid.block_size, self.program.threads
        if most is not None and threads != most:
            raise _launch_error(f"the kernel is written for {most} threads, its launch contract gives {threads}")
        if len(launch.params) != self.program.param_bytes:
            raise _launch_error(
                f"Params has {self.program.param_bytes} bytes, its launch contract describes {len(launch.params)}"
            )

    def _fault(self, kind: int, said: str) -> CuError:
        first, *rest = said.split("\n")
        pc, _, message = first.partition(" ")
        span, notes = self.place(int(pc))
        for line in rest:
            at, _, text = line.partition(" ")
            other = self.place(int(at))[0]
            if other is not NOWHERE:
                notes = (*notes, Note(text, other))
        return CuError(Diagnostic(_CODES[kind], f"emulator: {message}", span, notes), exit_code=6 if kind == 7 else 1)

    def place(self, pc: int) -> tuple[Span, tuple[Note, ...]]:
        """The line of the text itself that an instruction belongs to, where it has one; else the innermost line that is known; else
        the instruction in the PTX. What
        another text calls is at the line of the call; a note has the outermost call."""
        if not 0 <= pc < len(self.program.code):
            return NOWHERE, ()
        chain = cuda_chain(self.program, pc, self.files)
        main = next(iter(self.files.values()), None)
        own = [n for n, span in enumerate(chain) if self.innermost or span.file is main]
        if not chain:
            return self.program.span(pc), ()
        at = own[0] if own else 0
        calls = [span for span in chain[at + 1 :] if span.file is main]
        return chain[at], tuple(Note("called from here", span) for span in calls[-1:])


@dataclass(frozen=True, slots=True)
class _Arranged:
    """A launch with the arrays that it points to."""

    launch: CLaunch
    keep: tuple[object, ...]


def _arrange(
    launch: PtxLaunch, buffers: Sequence[ctypes.Array[ctypes.c_char]], schedule: Schedule, seconds: float, traced: int
) -> _Arranged:
    tensors = (CTensor * max(1, len(launch.tensors)))()
    for place, tensor, buffer in zip(tensors, launch.tensors, buffers, strict=False):
        place.name, place.bytes = tensor.name.encode()[:47], ctypes.addressof(buffer)
        place.size, place.flags, place.align = len(tensor.data), tensor.flags, tensor.align
    maps = (CMap * max(1, len(launch.maps)))(*map(_map, launch.maps))
    pointers = (CPointer * max(1, len(launch.pointers)))(*(CPointer(*p) for p in launch.pointers))
    params = ctypes.create_string_buffer(launch.params, max(1, len(launch.params)))
    grid = launch.grid
    share = _REGISTERS_OF_BLOCK // max(1, -(-grid.block_size // 32) * 32) // 8 * 8
    made = CLaunch(
        grid.blocks, grid.threads, grid.cluster, grid.shared_bytes, schedule, min(share, 255), traced, seconds,
        ctypes.addressof(params), ctypes.addressof(tensors), ctypes.addressof(maps), ctypes.addressof(pointers),
        len(launch.params), len(launch.tensors), len(launch.maps), len(launch.pointers),
    )  # fmt: skip
    return _Arranged(made, (tensors, maps, pointers, params, buffers))


def _map(found: TensorMap) -> CMap:
    fill = (0,) * (_MOST_AXES - len(found.extents))
    swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[found.swizzle_bytes]
    strides = (found.element_bytes, *found.strides, *fill)
    return CMap(
        found.tensor, len(found.extents), found.element_bytes, swizzle, (*found.extents, *fill), strides, (*found.box, *fill),
        found.param_offset,
    )  # fmt: skip


def _load(program: Program, encoded: Sequence[Encoded], constants: Constants) -> int:
    slots = [slot for found in encoded for slot in found.slots]
    operands = (COperand * max(1, len(slots)))(
        *(COperand(s.slot, s.offset, s.bytes, s.negated, s.is_address) for s in slots)
    )
    code = (CInstruction * max(1, len(encoded)))()
    first = 0
    for place, found in zip(code, encoded, strict=False):
        place.row, place.guard, place.negated, place.target = found.row, found.guard, found.negated, found.target
        place.first, place.results, place.count = first, found.results, len(found.slots)
        first += len(found.slots)
    values = [CConstant(slot, kind, value) for (_, kind, value), slot in constants.found.items()]
    filled = (CConstant * max(1, len(values)))(*values)
    widths = bytes(constants.widths)
    data = ctypes.create_string_buffer(program.data, max(1, len(program.data)))
    width_array = ctypes.create_string_buffer(widths, max(1, len(widths)))
    made = CProgram(
        *map(ctypes.addressof, (code, operands, filled, width_array, data)),
        len(encoded), len(slots), len(values), len(widths), program.predicates + 2, len(program.data), program.shared_bytes,
        program.local_bytes,
    )  # fmt: skip
    return library().ptx_load(ctypes.byref(made))


def _launch_error(message: str) -> CuError:
    return CuError(Diagnostic("CU836", f"emulator: launch: {message}"))
