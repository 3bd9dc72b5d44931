"""The bytes of a kernel's `Params`: the layout that the device compiler gives the struct, for GPU and emulator alike."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cubridge.ir.contract import CType, LaunchContract, ParamField
from cubridge.ir.diagnostics import CuError, Diagnostic

_FORMATS: Final = {CType.I64: "<q", CType.INT: "<i", CType.FLOAT: "<f"}
_POINTER: Final = "<Q"


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """Where a field lies in `Params`, bytes from its start."""

    field: ParamField
    offset: int


def layout(contract: LaunchContract) -> tuple[tuple[FieldPlace, ...], int]:
    """The place of every field, and the size of the struct."""
    places: list[FieldPlace] = []
    end, alignment = 0, 1
    for field in contract.params:
        offset = _aligned(end, field.c_type.alignment)
        places.append(FieldPlace(field, offset))
        end = offset + field.c_type.bytes
        alignment = max(alignment, field.c_type.alignment)
    return tuple(places), _aligned(end, alignment)


def pack(contract: LaunchContract, values: Mapping[str, int | float | bytes]) -> bytes:
    """`Params` with these values by field name: addresses, strides and scalars as numbers, tensor maps as their 128 bytes.
    Errors: CU826 for a number that its field cannot hold."""
    places, size = layout(contract)
    data = bytearray(size)
    for place in places:
        data[place.offset : place.offset + place.field.c_type.bytes] = _bits(place.field, values[place.field.name])
    return bytes(data)


def _bits(field: ParamField, value: int | float | bytes) -> bytes:
    if isinstance(value, bytes):
        assert len(value) == field.c_type.bytes, field.name
        return value
    kind = _POINTER if field.c_type.is_pointer else _FORMATS[field.c_type]
    number = value if field.c_type is CType.FLOAT else _whole(field, value)
    try:
        return struct.pack(kind, number)
    except (struct.error, OverflowError) as error:
        raise _misfit(field, value) from error


def _whole(field: ParamField, value: int | float) -> int:
    if value != int(value):
        raise _misfit(field, value)
    return int(value)


def _misfit(field: ParamField, value: object) -> CuError:
    return CuError(
        Diagnostic("CU826", f"{value} does not fit the `{field.c_type}` parameter `{field.name}`", field.span)
    )


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
