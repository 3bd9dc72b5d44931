"""What a launch gives to a kernel, as slices of its runs read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cubridge.frontend.ptx.values import ZERO, Value


@dataclass(frozen=True, slots=True)
class Param:
    """What lies among the parameters, in so many bytes."""

    value: Value
    bytes: int


@dataclass(frozen=True, slots=True)
class Given:
    """What a launch gives: `params` by their offsets, between which all `bytes` are zero; `sizes` in numbers. An address is the
    atom of its tensor."""

    params: Mapping[int, Param]
    sizes: Mapping[str, int]
    bytes: int

    def read(self, offset: int, size: int) -> Value | None:
        """What lies there; None for a part of a parameter, or of two."""
        found = self.params.get(offset)
        if found is not None and found.bytes == size:
            return found.value
        is_apart = all(at + p.bytes <= offset or offset + size <= at for at, p in self.params.items())
        return ZERO if is_apart and offset >= 0 and offset + size <= self.bytes else None


def address_name(tensor: str) -> str:
    """The atom that stands for where a tensor begins."""
    return f"@{tensor}"
