"""The bytes of a kernel's `Params`, laid out as a C++ compiler lays out the struct."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from cubridge.ir.contract import CType, LaunchContract
from cubridge.ir.diagnostics import CuError, Diagnostic

FieldBits = int | float | bytes
"""An address, an integer or a number; the 128 bytes of a tensor map."""

_FORMAT: Final[dict[CType, str]] = {
    CType.TENSOR_MAP: "128s", CType.HALF_POINTER: "Q", CType.FLOAT_POINTER: "Q", CType.INT_POINTER: "Q",
    CType.I64: "q", CType.INT: "i", CType.FLOAT: "f",
}  # fmt: skip


def pack(contract: LaunchContract, values: Mapping[str, FieldBits]) -> bytes:
    """The struct with `values` by field name. Errors: CU826 for a number that does not fit its field."""
    packed = bytearray()
    for field in contract.params:
        packed += bytes(-len(packed) % field.c_type.alignment)
        value = values[field.name]
        try:
            packed += struct.pack("<" + _FORMAT[field.c_type], value)
        except (struct.error, OverflowError) as error:
            raise CuError(
                Diagnostic("CU826", f"`p.{field.name}` cannot hold {value!r} ({field.c_type}: {error})", field.span)
            ) from error
    return bytes(packed + bytes(-len(packed) % max(f.c_type.alignment for f in contract.params)))
