"""Source text and places in it. Offsets are UTF-8 bytes, lines and columns count from 1, columns in characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

_LINE_END: Final = re.compile(rb"\n")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One text, by the name that diagnostics show."""

    name: str
    data: bytes = field(repr=False)
    line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = (0, *(match.end() for match in _LINE_END.finditer(self.data)))
        object.__setattr__(self, "line_starts", starts)

    @staticmethod
    def from_text(name: str, text: str) -> SourceFile:
        return SourceFile(name, text.encode("utf-8"))

    @staticmethod
    def read(path: Path) -> SourceFile:
        return SourceFile(str(path), path.read_bytes())

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", errors="replace")

    def location(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of a byte offset."""
        line = bisect_right(self.line_starts, offset)
        start = self.line_starts[line - 1]
        return line, len(self.data[start:offset].decode("utf-8", errors="replace")) + 1

    def line(self, number: int) -> str:
        """The text of one line, without its end."""
        start = self.line_starts[number - 1]
        end = self.line_starts[number] if number < len(self.line_starts) else len(self.data)
        return self.data[start:end].decode("utf-8", errors="replace").rstrip("\r\n")

    def offset(self, line: int, column: int) -> int:
        """Byte offset of a line and column, both from 1."""
        start = self.line_starts[line - 1]
        return start + len(self.line(line)[: column - 1].encode("utf-8"))

    def slice(self, start: int, end: int) -> str:
        return self.data[start:end].decode("utf-8", errors="replace")

    @property
    def digest(self) -> str:
        return sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, end) of a source file."""

    file: SourceFile = field(repr=False)
    start: int
    end: int

    @staticmethod
    def whole_line(file: SourceFile, line: int) -> Span:
        start = file.line_starts[line - 1]
        text = file.line(line)
        indent = len(text) - len(text.lstrip())
        first = start + len(text[:indent].encode("utf-8"))
        return Span(file, first, start + len(text.encode("utf-8")))

    @property
    def text(self) -> str:
        return self.file.slice(self.start, self.end)

    @property
    def location(self) -> tuple[int, int]:
        return self.file.location(self.start)

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of `other`."""
        return Span(self.file, self.start, max(self.end, other.end))

    def __reduce__(self) -> str | tuple[object, ...]:
        """Copies, in other processes too, know that they are nowhere."""
        return "NOWHERE" if self is NOWHERE else (Span, (self.file, self.start, self.end))

    def __str__(self) -> str:
        line, column = self.location
        return f"{self.file.name}:{line}:{column}"


NOWHERE = Span(SourceFile("<generated>", b""), 0, 0)
"""The place of nodes that no text stands for."""
