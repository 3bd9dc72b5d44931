"""Text edits of one file, on bytes: they may not overlap, are applied at once, and give a diff that `git apply` takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.source import SourceFile, Span

CONTEXT: Final = 3


@dataclass(frozen=True, slots=True)
class TextEdit:
    """The bytes of `span` become `new`."""

    span: Span
    new: bytes


def apply_edits(file: SourceFile, edits: Iterable[TextEdit]) -> bytes:
    """The text after all edits. Errors: CU605 if two of them overlap."""
    parts: list[bytes] = []
    at = 0
    for edit in _in_order(file, edits):
        parts += [file.data[at : edit.span.start], edit.new]
        at = edit.span.end
    return b"".join((*parts, file.data[at:]))


def _in_order(file: SourceFile, edits: Iterable[TextEdit]) -> list[TextEdit]:
    ordered = sorted(edits, key=lambda e: (e.span.start, e.span.end))
    for first, second in pairwise(ordered):
        if second.span.start < first.span.end or second.span == first.span:
            note = Note("the other is here", first.span)
            raise CuError(Diagnostic("CU605", f"two edits of {file.name} overlap", second.span, (note,)))
    return ordered


def newline_of(file: SourceFile) -> bytes:
    """The line end that most lines of the file have."""
    crlf = file.data.count(b"\r\n")
    return b"\r\n" if crlf * 2 > file.data.count(b"\n") else b"\n"


# ---- unified diff ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a diff: mark is " ", "-" or "+"; `text` includes its line end."""

    mark: str
    text: bytes


def diff_lines(file: SourceFile, edits: Iterable[TextEdit]) -> list[Line]:
    """All lines of the old and the new text. Edits are compared one by one: a diff of whole files would match braces of one region
    with those of another."""
    lines: list[Line] = []
    at = 0
    for start, end, new in _by_lines(file, edits):
        lines += [Line(" ", line) for line in _split(file.data[at:start])]
        lines += _compare(_split(file.data[start:end]), _split(new))
        at = end
    return lines + [Line(" ", line) for line in _split(file.data[at:])]


def _by_lines(file: SourceFile, edits: Iterable[TextEdit]) -> Iterator[tuple[int, int, bytes]]:
    """Edits widened to whole lines; those that share a line become one."""
    group: list[TextEdit] = []
    for edit in _in_order(file, edits):
        if group and _line_end(file, group[-1].span) > edit.span.start:
            group.append(edit)
            continue
        if group:
            yield _widened(file, group)
        group = [edit]
    if group:
        yield _widened(file, group)


def _widened(file: SourceFile, group: Sequence[TextEdit]) -> tuple[int, int, bytes]:
    start = file.data.rfind(b"\n", 0, group[0].span.start) + 1
    end = _line_end(file, group[-1].span)
    parts: list[bytes] = []
    at = start
    for edit in group:
        parts += [file.data[at : edit.span.start], edit.new]
        at = edit.span.end
    return start, end, b"".join((*parts, file.data[at:end]))


def _line_end(file: SourceFile, span: Span) -> int:
    """The end of the last line that the span touches; its own end if it ends a line or is empty at the start of one."""
    is_whole = span.end == 0 or file.data[span.end - 1 : span.end] == b"\n"
    newline = file.data.find(b"\n", span.end)
    return span.end if is_whole else (newline + 1 if newline >= 0 else len(file.data))


def _split(data: bytes) -> list[bytes]:
    """Lines with their ends; only LF ends a line, as in git."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _compare(old: Sequence[bytes], new: Sequence[bytes]) -> list[Line]:
    lines: list[Line] = []
    for tag, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [Line(" ", line) for line in old[start:end]]
        else:
            lines += [Line("-", line) for line in old[start:end]]
            lines += [Line("+", line) for line in new[new_start:new_end]]
    return lines


def unified_diff(lines: Sequence[Line], name: str) -> bytes:
    """The diff as `git apply` reads it; b"" where nothing changed."""
    hunks = b"".join(_hunk(lines, start, end) for start, end in _ranges(lines))
    return f"--- a/{name}\n+++ b/{name}\n".encode() + hunks if hunks else b""


def _ranges(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Slices of `lines` around changes, with context; slices that meet are one."""
    current: tuple[int, int] | None = None
    for at, line in enumerate(lines):
        if line.mark == " ":
            continue
        start, end = max(0, at - CONTEXT), min(len(lines), at + 1 + CONTEXT)
        if current is not None and start <= current[1]:
            current = (current[0], end)
            continue
        if current is not None:
            yield current
        current = (start, end)
    if current is not None:
        yield current


def _hunk(lines: Sequence[Line], start: int, end: int) -> bytes:
    old, new = (_extent(lines, start, end, mark) for mark in "-+")
    body = b"".join(_marked(line) for line in lines[start:end])
    return f"@@ -{old} +{new} @@\n".encode() + body


def _extent(lines: Sequence[Line], start: int, end: int, mark: str) -> str:
    """`first,count` of a hunk in the text that has the lines marked `mark`."""
    before = sum(line.mark in (" ", mark) for line in lines[:start])
    count = sum(line.mark in (" ", mark) for line in lines[start:end])
    return f"{before + (count > 0)},{count}"


def _marked(line: Line) -> bytes:
    ended = line.text.endswith(b"\n")
    return line.mark.encode() + line.text + (b"" if ended else b"\n\\ No newline at end of file\n")
