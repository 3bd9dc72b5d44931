"""Records what one block of a launch does, as a trace that other rooms can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from cubridge.backend.ptx.encode import SPECIALS, Encoded, Slot, row_name
from cubridge.backend.ptx.machine import Machine, PtxLaunch
from cubridge.ir.trace import LANES, Address, Number, Operation, Register, Scalar, Special, Step, Trace, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TENSOR_SHIFT: Final = 36
"""Of memory.h: each tensor has a window of its own."""
_NAMES: Final = {kind: name for name, kind in SPECIALS.items()}


def trace(machine: Machine, launch: PtxLaunch, block: int, seconds: float) -> tuple[Trace, tuple[bytes, ...]]:
    """What the block of this number did, counted along x first, and the outputs. Errors: CU832 to CU837."""
    outputs, log = machine.log(launch, block, seconds)
    code = operations(machine)
    windows = tuple(
        Window(t.name, ((n + 1) << _TENSOR_SHIFT) + t.align, len(t.data)) for n, t in enumerate(launch.tensors)
    )
    x, y, _ = launch.grid.blocks
    place = (block % x, block // x % y, block // x // y)
    steps = tuple(_steps(machine.encoded, log))
    return Trace(code, steps, place, launch.grid.blocks, launch.grid.threads, windows), outputs


@lru_cache(maxsize=8)
def operations(machine: Machine) -> tuple[Operation, ...]:
    """The program with its operands resolved, and the end that the machine puts behind it."""
    reader = _Reader(machine)
    end = Operation("exit", None, (), (), -1, machine.place(len(machine.program.code) - 1)[0])
    return (*(reader.operation(pc, found) for pc, found in enumerate(machine.encoded)), end)


class _Reader:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.constants = {slot: key for key, slot in machine.constants.found.items()}
        self.sinks = frozenset(machine.constants.sinks.values())

    def operation(self, pc: int, found: Encoded) -> Operation:
        span, _ = self.machine.place(pc)
        results = tuple(self._result(slot) for slot in found.slots[: found.results])
        sources = tuple(self._source(slot) for slot in found.slots[found.results :])
        guard = None if found.guard < 0 else Register(found.guard, 0, found.negated)
        name = row_name(self.machine.program.code[pc])
        return Operation(name, guard, results, sources, found.target, span)

    def _result(self, slot: Slot) -> Register | None:
        return None if slot.slot < 0 or slot.slot in self.sinks else Register(slot.slot, slot.bytes)

    def _source(self, slot: Slot) -> Scalar | Address:
        scalar = self._scalar(slot)
        return Address(scalar, slot.offset) if slot.is_address else scalar

    def _scalar(self, slot: Slot) -> Scalar:
        if slot.bytes == 0 and slot.slot >= self.machine.program.predicates:
            return Number(slot.slot - self.machine.program.predicates, 0)
        found = self.constants.get(slot.slot) if slot.bytes else None
        if found is None:
            return Register(slot.slot, slot.bytes, slot.negated)
        width, kind, value = found
        return Special(_NAMES[kind]) if kind else Number(value, width)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What an entry of the log holds for an operation: rows of addresses, and whether each result is a predicate."""

    addresses: int
    predicates: tuple[bool, ...]

    @staticmethod
    def of(found: Encoded) -> _Shape:
        sources = found.slots[found.results :]
        return _Shape(sum(s.is_address for s in sources), tuple(s.bytes == 0 for s in found.slots[: found.results]))


def _steps(encoded: Sequence[Encoded], log: NDArray[np.uint64]) -> Iterator[Step]:
    shapes = [_Shape.of(found) for found in encoded]
    at = 0
    while at < len(log):
        first, second = (int(x) for x in log[at : at + 2])
        pc, mask, warp, count = first >> 32, first & 0xFFFFFFFF, second >> 32, second & 0xFFFFFFFF
        data = log[at + 2 : at + 2 + count]
        at += 2 + count
        if pc < len(encoded) and encoded[pc].target >= 0:
            yield Step(pc, warp, mask, data[:0], (), int(data[0]))
            continue
        shape = shapes[pc] if pc < len(encoded) else _Shape(0, ())
        used = shape.addresses * LANES
        results: list[NDArray[np.uint64] | int] = []
        for is_predicate in shape.predicates:
            width = 1 if is_predicate else LANES
            part = data[used : used + width]
            results.append(int(part[0]) if is_predicate else part)
            used += width
        yield Step(pc, warp, mask, data[: shape.addresses * LANES].reshape(shape.addresses, LANES), tuple(results))
