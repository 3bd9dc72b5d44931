"""Region markers: the comments of a kernel text that say where its regions begin and end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import SOURCE_REGIONS, SourceMap, SourceRegion

_MARKER: Final = re.compile(rb"^[ \t]*//[ \t]*@(region|endregion)\b[ \t]*([^\r\n]*?)[ \t]*\r?$", re.MULTILINE)


def read_source_map(file: SourceFile, known: Sequence[str] = SOURCE_REGIONS) -> SourceMap:
    """The regions of a kernel text, which has all of `known`. Errors: CU422 for each marker that is unclosed, duplicate, unknown,
    out of order or missing."""
    markers = _Markers(file, known)
    for match in _MARKER.finditer(file.data):
        name, place = match[2].decode("utf-8", errors="replace"), _marker_span(file, match)
        if match[1] == b"region":
            markers.open(name, place)
        else:
            markers.close(name, place, match.start())
    markers.end()
    if markers.faults:
        raise CuError(*markers.faults)
    return SourceMap(file, tuple(sorted(markers.regions.values(), key=lambda r: r.span.start)))


@dataclass(slots=True)
class _Markers:
    """The markers that were read. `opened`: the open region and its marker; `at_fault`: the regions that a fault of
    their own is about, and which are not missing besides."""

    file: SourceFile
    known: Sequence[str]
    regions: dict[str, SourceRegion] = field(default_factory=dict[str, SourceRegion])
    opened: tuple[str, Span] | None = None
    faults: list[Diagnostic] = field(default_factory=list[Diagnostic])
    at_fault: set[str] = field(default_factory=set[str])

    def open(self, name: str, place: Span) -> None:
        self._leave_open()
        self.faults += _misnamed(name, place, self.regions, self.known)
        self.opened = (name, place)

    def close(self, name: str, place: Span, line_start: int) -> None:
        match self.opened:
            case None:
                self.faults.append(_closes_nothing(name, place, "no region is open here"))
            case (opened, opened_at) if opened != name:
                note = Note("it is opened here", opened_at)
                self.faults.append(_closes_nothing(name, place, f"the open region is `{opened}`", note))
                self.at_fault.add(opened)
            case (_, opened_at):
                span = Span(self.file, _next_line(self.file, opened_at.end), line_start)
                self.regions.setdefault(name, SourceRegion(name, span))
                self.opened = None

    def end(self) -> None:
        """The end of the text: nothing may be open, and no region be missing."""
        self._leave_open()
        size = len(self.file.data)
        for name in self.known:
            if name not in self.regions and name not in self.at_fault:
                self.faults.append(_missing(name, Span(self.file, size, size)))

    def _leave_open(self) -> None:
        if self.opened is not None:
            self.faults.append(_unclosed(*self.opened))
            self.at_fault.add(self.opened[0])


def _marker_span(file: SourceFile, match: re.Match[bytes]) -> Span:
    text = match[0].rstrip()
    start = match.start() + len(text) - len(text.lstrip())
    return Span(file, start, match.start() + len(text))


def _next_line(file: SourceFile, at: int) -> int:
    end = file.data.find(b"\n", at)
    return len(file.data) if end < 0 else end + 1


# ---- faults ----------------------------------------------------------------------------------------------------------


def _misnamed(name: str, place: Span, regions: Mapping[str, SourceRegion], known: Sequence[str]) -> list[Diagnostic]:
    """What is wrong with the name of a region that begins at `place`, after `regions`."""
    if name not in known:
        help = f"regions: {', '.join(known)}"
        return [Diagnostic("CU422", f"there is no region `{name}`", place, help=help)]
    if name in regions:
        note = Note("it is here as well", regions[name].span)
        return [Diagnostic("CU422", f"region `{name}` is marked twice", place, (note,))]
    return []


def _closes_nothing(name: str, place: Span, expected: str, *notes: Note) -> Diagnostic:
    return Diagnostic("CU422", f"`@endregion {name}` closes nothing: {expected}", place, notes)


def _unclosed(name: str, place: Span) -> Diagnostic:
    return Diagnostic("CU422", f"region `{name}` is not closed", place, help=f"end it by `// @endregion {name}`")


def _missing(name: str, place: Span) -> Diagnostic:
    return Diagnostic("CU422", f"the kernel has no region `{name}`", place, help=f"mark it by `// @region {name}`")
