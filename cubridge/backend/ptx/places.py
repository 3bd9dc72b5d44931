"""Which line of CUDA text an instruction stands for: `.file`, `.loc` and the chain of calls that were inlined."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_FILE: Final = re.compile(r'\.file\s+(\d{1,9})\s+"([^"]*)"')
_LOC: Final = re.compile(
    r"\.loc\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})(?:\s*,\s*function_name\s+[\w$]+(?:\+\d+)?\s*,\s*inlined_at\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9}))?"
)
_DEEPEST: Final = 100


@dataclass(frozen=True, slots=True)
class CudaLine:
    """A line of a file, both as the compiler names them."""

    file: str
    line: int


Position = tuple[int, int, int]
"""File number, line, column."""


@dataclass(slots=True)
class Places:
    """The `.loc` directives of a text in their order, each with the call that it was inlined at, and the place of the call in whose
    body it stands, or -1."""

    files: dict[int, str] = field(default_factory=dict[int, str])
    locs: list[tuple[Position, Position | None, int]] = field(
        default_factory=list[tuple[Position, Position | None, int]]
    )

    def add(self, directive: str, caller: int = -1) -> None:
        """Note a `.file` or `.loc`; anything else that begins so says no place. `caller`: the place of the call whose
        body this is."""
        if found := _FILE.match(directive):
            self.files[int(found[1])] = found[2]
        elif found := _LOC.match(directive):
            numbers = [None if x is None else int(x) for x in found.groups()]
            here, call = numbers[:3], numbers[3:]
            self.locs.append((_position(here), None if call[0] is None else _position(call), caller))

    @property
    def last(self) -> int:
        """Index of the latest `.loc`; -1 before the first."""
        return len(self.locs) - 1

    def chain(self, index: int) -> tuple[CudaLine, ...]:
        """The line at a `.loc`, then the call that it was inlined at, then the call of that."""
        lines: list[CudaLine] = []
        while index >= 0 and len(lines) < _DEEPEST:
            position, call, caller = self.locs[index]
            lines.append(self._line(position))
            outer = caller if call is None else self._before(index, call)
            if call is not None and outer < 0:
                lines.append(self._line(call))
                outer = caller
            index = outer
        return tuple(lines)

    def _before(self, index: int, position: Position) -> int:
        """The latest earlier `.loc` of this position: a compiler places a call before what it inlines there."""
        return next((n for n in range(index - 1, -1, -1) if self.locs[n][0] == position), -1)

    def _line(self, position: Position) -> CudaLine:
        return CudaLine(self.files.get(position[0], "?"), position[1])


def _position(numbers: list[int | None]) -> Position:
    first, second, third = (n or 0 for n in numbers)
    return first, second, third
