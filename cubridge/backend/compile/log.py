"""What NVRTC prints, as data: messages at their places in the texts, and what each kernel uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.source import NOWHERE, SourceFile, Span


@dataclass(frozen=True, slots=True)
class Resources:
    """What a thread of a kernel uses; spills and stack in bytes."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads


_MESSAGE = re.compile(
    r"^(?:(?P<file>[^\n(]+)\((?P<line>\d+)\)|At end of source): "
    r"(?P<kind>error|warning|catastrophic error|note)(?: #\d+-D)?: (?P<text>.*)$"
)
_INSTANTIATION = re.compile(
    r"^ +(?:detected during )?instantiation of (?P<text>.*?)(?: at line (?P<line>\d+)(?: of (?P<file>\S+))?)?$"
)
SERIALISED = "CU810"
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_ASSEMBLER = re.compile(r"ptxas (?:application ptx input, line (?P<line>\d+); )?(?:error|fatal) *: (?P<text>.*)")
_SERIALISES = re.compile(r"\(C75\d\d\)[^\n]*")
_WORD = re.compile(rb"[A-Za-z_]\w*")


def resources_of(log: str) -> dict[str, Resources]:
    """By kernel name, from a log of `--ptxas-options=-v`."""
    found: dict[str, Resources] = {}
    name, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, frame = entry["name"], (0, 0, 0)
        elif spills := _SPILLS.search(line):
            frame = (int(spills[1]), int(spills[2]), int(spills[3]))
        elif used := _USED.search(line):
            stack, stores, loads = frame
            found[name] = Resources(int(used[1]), stores, loads, stack)
    return found


def messages_of(log: str, files: Mapping[str, SourceFile], lines_of_ptx: Mapping[int, Span]) -> tuple[Diagnostic, ...]:
    """Errors and warnings of the compiler, then of the assembler; `lines_of_ptx` places the latter. The first of `files` is
    the text itself."""
    lines = log.splitlines()
    return (*_compiler_messages(lines, files), *_assembler_messages(lines, lines_of_ptx))


def serialised_wgmma(log: str) -> tuple[Diagnostic, ...]:
    """The assembler waits after each wgmma where it cannot see that its registers are free (C7510 to C7519). It does
    not call that an error; here it is one, since such a kernel is several times slower than its text says."""
    found = dict.fromkeys(m[0] for m in _SERIALISES.finditer(log))
    help_ = "keep the registers of a wgmma untouched until its wait, and its accumulators out of branches"
    return tuple(Diagnostic(SERIALISED, f"the assembler serialises wgmma: {text}", help=help_) for text in found)


def ptx_places(ptx: str, files: Mapping[str, SourceFile]) -> dict[int, Span]:
    """For each line of PTX (from 1) the CUDA line that it stands for, from the `.loc` directives of `-lineinfo`."""
    numbered = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', ptx, re.MULTILINE))
    by_number = {number: _named(path, files) for number, path in numbered.items()}
    places: dict[int, Span] = {}
    current = NOWHERE
    for number, line in enumerate(ptx.splitlines(), 1):
        if loc := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)\s+\d+", line):
            file = by_number.get(loc[1])
            current = NOWHERE if file is None else Span.whole_line(file, int(loc[2]))
        places[number] = current
    return places


def _named(path: str, files: Mapping[str, SourceFile]) -> SourceFile | None:
    return next((f for name, f in files.items() if path == name or path.endswith("/" + name)), None)


def _compiler_messages(lines: list[str], files: Mapping[str, SourceFile]) -> Iterator[Diagnostic]:
    heads = [(at, head) for at, line in enumerate(lines) if (head := _MESSAGE.match(line))]
    current: Diagnostic | None = None
    for (at, head), end in zip(heads, (*(at for at, _ in heads[1:]), len(lines)), strict=False):
        below = lines[at + 1 : end]
        span = _place(head, below, files)
        if head["kind"] == "note" and current is not None:
            current = replace(current, notes=(*current.notes, Note(head["text"], span)))
            continue
        if current is not None:
            yield current
        severity = "warning" if head["kind"] == "warning" else "error"
        current = Diagnostic("CU806", head["text"], span, tuple(_notes(below, span.file, files)), severity=severity)
    if current is not None:
        yield current


def _place(head: re.Match[str], below: list[str], files: Mapping[str, SourceFile]) -> Span:
    """The word under the caret. The excerpt is indented by two columns; the caret counts bytes."""
    if head["file"] is None:
        return _last_line(next(iter(files.values())))
    file = _named(head["file"], files)
    if file is None:
        return NOWHERE
    line = int(head["line"])
    if len(below) < 2 or below[1].strip() != "^":
        return Span.whole_line(file, line)
    start = file.line_starts[line - 1] + below[1].index("^") - 2
    word = _WORD.match(file.data, start)
    return Span(file, start, word.end() if word else start + 1)


def _last_line(file: SourceFile) -> Span:
    lines = [number for number in range(1, len(file.line_starts) + 1) if file.line(number).strip()]
    return Span.whole_line(file, lines[-1] if lines else 1)


def _notes(below: list[str], file: SourceFile, files: Mapping[str, SourceFile]) -> Iterator[Note]:
    """The `instantiation of ..` lines below a message; one that names no file is in the file of the message."""
    for line in below:
        if found := _INSTANTIATION.match(line):
            place = _named(found["file"], files) if found["file"] else file
            known = place is not None and place is not NOWHERE.file and found["line"] is not None
            span = Span.whole_line(place, int(found["line"])) if known and place is not None else NOWHERE
            yield Note(f"in the instantiation of {found['text']}", span)


def _assembler_messages(lines: list[str], places: Mapping[int, Span]) -> Iterator[Diagnostic]:
    for line in lines:
        found = _ASSEMBLER.search(line)
        if found and not found["text"].startswith("Ptx assembly aborted"):
            span = places.get(int(found["line"]), NOWHERE) if found["line"] else NOWHERE
            yield Diagnostic("CU807", f"the assembler refuses this: {found['text']}", span)
