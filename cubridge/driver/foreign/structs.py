"""Parameters that are structures: where their fields lie says a kernel that is compiled with the text, behind it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch, Schedule, TensorFlags, TensorMemory
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract, ForeignParameter, ForeignStruct
from cubridge.ir.source import Span

LAYOUT: Final = "cubridge_layout"
_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes from the start of the structure, and of the field itself."""

    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StructLayout:
    """`fields` by their names in the contract; `bytes` of the whole."""

    fields: Mapping[str, Place]
    bytes: int


def structs_of(contract: ForeignContract) -> list[ForeignStruct]:
    return [p for p in contract.parameters if isinstance(p, ForeignStruct)]


def layout_text(contract: ForeignContract) -> str:
    """A kernel that writes place and width of each field, and the size of each structure: one line a field."""
    structs = structs_of(contract)
    if not structs:
        return ""
    lines = [f'\nextern "C" __global__ void {LAYOUT}(unsigned* out) {{', *(line for s in structs for line in _lines(s))]
    return "\n".join((*lines, "}", ""))


def _lines(parameter: ForeignStruct) -> Iterator[str]:
    at = f"p_{parameter.name}"
    yield f"    const {parameter.type}* {at} = nullptr;"
    for field in parameter.fields:
        name = field.name.removeprefix(f"{parameter.name}.")
        yield f"    *out++ = (unsigned)(unsigned long long)&{at}->{name}; *out++ = sizeof {at}->{name};"
    yield f"    *out++ = sizeof *{at};"


def layout_places(contract: ForeignContract) -> list[Span]:
    """Of the contract, what each line of that text is for, from its second on."""
    spans: list[Span] = []
    for parameter in structs_of(contract):
        spans += [parameter.span, *(field.span for field in parameter.fields), parameter.span]
    return spans


def read_layouts(machine: Machine, contract: ForeignContract) -> Mapping[str, StructLayout]:
    """By parameter. Errors: CU852 where a field has another width than the contract says."""
    structs = structs_of(contract)
    count = sum(2 * len(s.fields) + 1 for s in structs)
    out = TensorMemory("out", bytes(4 * count), TensorFlags.OUTPUT, 16)
    launch = PtxLaunch(Grid((1, 1, 1), (1, 1, 1), 0), bytes(8), (out,), ((0, 0),))
    [written] = machine.run(launch, Schedule.FORWARD, _SECONDS)
    words = iter(struct.unpack(f"<{count}I", written))
    return {s.name: _layout(s.fields, words) for s in structs}


def _layout(fields: Sequence[ForeignParameter], words: Iterator[int]) -> StructLayout:
    found: dict[str, Place] = {}
    for field in fields:
        place = Place(next(words), next(words))
        if place.bytes != field.kind.bytes:
            message = f"`{field.name}` has {place.bytes} bytes in the kernel, not those of `{field.kind}`"
            raise CuError(Diagnostic("CU852", message, field.span))
        found[field.name] = place
    return StructLayout(found, next(words))
