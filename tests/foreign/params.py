"""Structures of parameters of others, filled by the names of their fields; where those lie says a kernel over their own header."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch, Schedule, TensorMemory


@dataclass(frozen=True, slots=True)
class Field:
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    fields: Mapping[str, Field]
    size: int

    def filled(self, values: Mapping[str, float]) -> bytes:
        """Zero but for `values`: integers and flags as wide as their fields, floats of four bytes."""
        data = bytearray(self.size)
        for name, value in values.items():
            field = self.fields[name]
            is_float = isinstance(value, float)
            assert field.size == 4 or not is_float, name
            data[field.offset : field.offset + field.size] = (
                struct.pack("<f", value)
                if is_float
                else (int(value) & (1 << 8 * field.size) - 1).to_bytes(field.size, "little")
            )
        return bytes(data)


def layout_of(machine: Machine, names: Sequence[str]) -> Layout:
    """Runs a kernel that writes offset and width of each name, then the size of the whole."""
    out = TensorMemory("out", bytes(4 * (2 * len(names) + 1)), 1, 16)
    [words] = machine.run(PtxLaunch(Grid((1, 1, 1), (1, 1, 1), 0), bytes(8), (out,), ((0, 0),)), Schedule.FORWARD, 5.0)
    numbers = struct.unpack(f"<{2 * len(names) + 1}I", words)
    return Layout({name: Field(*numbers[2 * n : 2 * n + 2]) for n, name in enumerate(names)}, numbers[-1])
