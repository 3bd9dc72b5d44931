"""Element types, axes and memory spaces of CuIR values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class DType(StrEnum):
    """Element types; the member's value is its name in CuIR text."""

    BOOL = "bool"
    I32 = "i32"
    I64 = "i64"
    F32 = "f32"
    BF16 = "bf16"
    F16 = "f16"

    @property
    def bytes(self) -> int:
        return _BYTES[self]

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.BF16, DType.F16)

    @property
    def is_int(self) -> bool:
        return self in (DType.I32, DType.I64)


_BYTES = {DType.BOOL: 1, DType.I32: 4, DType.I64: 8, DType.F32: 4, DType.BF16: 2, DType.F16: 2}


class Axis(StrEnum):
    """What a value varies over: query rows, key columns, output columns."""

    ROW = "i"
    KEY = "j"
    OUT = "e"


@dataclass(frozen=True, slots=True)
class ValueType:
    """Type of a value in region code. `partial`: a row sum whose lanes are not yet added (only linear use until `add_lanes`)."""

    dtype: DType
    axes: frozenset[Axis] = frozenset()
    partial: bool = False

    def __str__(self) -> str:
        axes = ", ".join(a.value for a in Axis if a in self.axes)
        name = f"{self.dtype}[{axes}]" if axes else str(self.dtype)
        return f"partial {name}" if self.partial else name


DTYPES: Final = {"bf16": DType.BF16, "fp16": DType.F16}
"""Element types of q, k, v and the output, as users name them."""
