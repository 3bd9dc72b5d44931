"""The regions of a kernel text as lines that a model may edit: those that its task names, and no byte outside of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from cubridge.backend.text.lower import Patched
from cubridge.backend.text.patch import TextEdit, apply_edits, diff_lines, newline_of, unified_diff
from cubridge.frontend.cuda.markers import read_source_map
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import NOWHERE, SourceFile, Span
from cubridge.ir.source_map import SourceMap
from cubridge.llm.prompt import numbered
from cubridge.llm.tools import Call

MAX_LINES: Final = 400
"""Lines of a region after an edit."""
MAX_LINE: Final = 400
"""Characters of a line."""


@dataclass(frozen=True, slots=True)
class LineEdit:
    """Lines first to last, from 1, become `new`; an insertion after line n has first = n + 1 and last = n."""

    first: int
    last: int
    new: tuple[str, ...]


@dataclass(slots=True)
class RegionEditor:
    """`allowed`: regions that may be edited. Line numbers are those of the region's present text, from 1."""

    file: SourceFile
    source_map: SourceMap
    allowed: Collection[str]
    _lines: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def read(self, call: Call) -> str:
        """The lines of the region that the call names, numbered. Errors: CU716 for a name that is no region."""
        return numbered("\n".join(self.lines(self._region(call.argument, call))) + "\n")

    def lines(self, region: str) -> list[str]:
        if region not in self._lines:
            text = self.source_map.region(region).span.text
            self._lines[region] = [line.removesuffix("\r") for line in text.split("\n")[:-1]]
        return self._lines[region]

    def edit(self, call: Call) -> str:
        """Apply the edits of a call, all at once, and show the region. Errors: CU715 a call that cannot be read; CU716 another
        region than those allowed, lines that it does not have, too many lines, a region marker."""
        region = self._region(call.argument, call)
        if region not in self.allowed:
            message = f"region `{region}` is none that may change"
            raise CuError(Diagnostic("CU716", message, call.span(), help=f"regions that may: {_listed(self.allowed)}"))
        old = self.lines(region)
        new = _applied(old, sorted(read_edits(call, len(old)), key=lambda e: (e.first, e.last)), call)
        self._replace(region, new, call.span())
        return self.read(call)

    def _replace(self, region: str, new: list[str], span: Span) -> None:
        if len(new) > MAX_LINES or any(len(line) > MAX_LINE for line in new):
            message = f"a region has at most {MAX_LINES} lines of {MAX_LINE} characters"
            raise CuError(Diagnostic("CU716", message, span))
        self._lines[region] = new

    def take(self, text: SourceFile) -> None:
        """The regions of a whole text. Errors: CU716 where another part of it is not the kernel's; those of reading its markers."""
        theirs = read_source_map(text)
        ours, given = _segments(self.file, self.source_map, self.allowed), _segments(text, theirs, self.allowed)
        for (name, mine, _), (other, new, span) in zip_longest(ours, given, fillvalue=("", [], NOWHERE)):
            if name != other or (not name and mine != new):
                message = "the text is another than the kernel's outside of regions that may change"
                help_ = f"regions that may: {_listed(self.allowed)}"
                raise CuError(Diagnostic("CU716", message, span, help=help_))
            if name:
                self._replace(name, new, span)

    def _region(self, name: str, call: Call) -> str:
        names = [r.name for r in self.source_map.regions]
        if name not in names:
            raise CuError(
                Diagnostic("CU716", f"there is no region `{name}`", call.span(), help=f"regions: {_listed(names)}")
            )
        return name

    def patched(self) -> Patched:
        """The whole text with the edits made."""
        changed = [r for r in self.source_map.regions if self._is_changed(r.name)]
        edits = [TextEdit(r.span, self._bytes(r.name)) for r in changed]
        lines = diff_lines(self.file, edits)
        return Patched(
            text=apply_edits(self.file, edits),
            patch=unified_diff(lines, "kernel.cu"),
            regions_changed=tuple(r.name for r in changed),
            lines_added=sum(line.mark == "+" for line in lines),
            lines_removed=sum(line.mark == "-" for line in lines),
        )

    def _is_changed(self, name: str) -> bool:
        span = self.source_map.region(name).span
        return name in self._lines and self._bytes(name) != span.file.data[span.start : span.end]

    def _bytes(self, name: str) -> bytes:
        end = newline_of(self.file)
        return b"".join(line.encode() + end for line in self._lines[name])


def _segments(file: SourceFile, regions: SourceMap, allowed: Collection[str]) -> Iterator[tuple[str, list[str], Span]]:
    """A text in parts, with their lines: regions that may change by name, and what lies between them, with the name ""."""
    at = 0
    for region in sorted((r for r in regions.regions if r.name in allowed), key=lambda r: r.span.start):
        for name, span in (("", Span(file, at, region.span.start)), (region.name, region.span)):
            yield name, _lines_of(span), span
        at = region.span.end
    rest = Span(file, at, len(file.data))
    yield "", _lines_of(rest), rest


def _lines_of(span: Span) -> list[str]:
    return [line.rstrip() for line in span.text.removesuffix("\n").split("\n")] if span.text else []


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


# ---- reading a call --------------------------------------------------------------------------------------------------

_OPERATION: Final = re.compile(r"@(insert|delete|modify)\s+(\d{1,4})(?:\s*-\s*(\d{1,4}))?\s*")
_MARKER: Final = re.compile(r"@\s*(end)?region\b")
_HELP: Final = "`@insert N` (after line N), `@delete N-M`, `@modify N-M`, with new lines below it"


def read_edits(call: Call, count: int) -> Iterator[LineEdit]:
    """The edits of a call on a region of `count` lines. Errors: CU715, CU716."""
    heads = [n for n, line in enumerate(call.body) if line.startswith("@")]
    stray = [n for n, line in enumerate(call.body[: heads[0] if heads else None]) if line.strip()]
    if stray or not heads:
        raise CuError(
            Diagnostic("CU715", "an edit begins with `@`", call.span(stray[0] + 1 if stray else 0), help=_HELP)
        )
    for at, end in zip(heads, [*heads[1:], len(call.body)], strict=True):
        yield _edit(call, at, call.body[at + 1 : end], count)


def _edit(call: Call, at: int, new: tuple[str, ...], count: int) -> LineEdit:
    place = call.span(at + 1)
    match = _OPERATION.fullmatch(call.body[at])
    if match is None:
        raise CuError(Diagnostic("CU715", "this is no edit", place, help=_HELP))
    for number, line in enumerate(new, at + 2):
        if _MARKER.search(line):
            raise CuError(Diagnostic("CU716", "an edit may not hold the marker of a region", call.span(number)))
    kind, first = match[1], int(match[2])
    last = first if match[3] is None else int(match[3])
    if kind == "insert":
        if match[3] is not None or first > count:
            raise CuError(Diagnostic("CU716", f"`@insert` takes one line, 0 to {count}", place))
        return LineEdit(first + 1, first, new)
    if not 1 <= first <= last <= count:
        raise CuError(Diagnostic("CU716", f"the region has lines 1 to {count}", place))
    if kind == "delete" and any(line.strip() for line in new):
        raise CuError(Diagnostic("CU715", "`@delete` takes no lines", place, help="replace lines by `@modify`"))
    return LineEdit(first, last, () if kind == "delete" else new)


def _applied(lines: Sequence[str], edits: Sequence[LineEdit], call: Call) -> list[str]:
    result: list[str] = []
    at = 0
    for edit in edits:
        if edit.first - 1 < at:
            raise CuError(Diagnostic("CU716", "two edits of one call overlap", call.span()))
        result += [*lines[at : edit.first - 1], *edit.new]
        at = edit.last
    return [*result, *lines[at:]]
