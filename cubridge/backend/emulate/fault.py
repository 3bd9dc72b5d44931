"""What a failed run of the emulator says, as diagnostics at the statements of the kernel text."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cubridge.backend.emulate.build import Program
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.source import NOWHERE, Span

_CODES: Final = {10: "CU832", 11: "CU833", 12: "CU834", 13: "CU835", 14: "CU836", 15: "CU836"}
"""Exit codes of the program (enum Fault of fault.h)."""
_PLACE: Final = re.compile(r"^  at (0x[0-9a-f]+) (.*)$", re.MULTILINE)
_REASON: Final = re.compile(r"^emulator: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Frame:
    file: Path
    line: int


def fault_of(program: Program, exit_code: int, text: str) -> CuError:
    """The error for a run that ended with `exit_code` and `text` on stderr."""
    reason = _REASON.search(text)
    if exit_code not in _CODES or reason is None:
        how = f"by signal {-exit_code}" if exit_code < 0 else f"with code {exit_code}"
        return CuError(Diagnostic("CU836", f"the emulated kernel ended {how}: {text.strip()[:300]}"))
    places = _PLACE.findall(text)
    spans = _spans(program, [address for address, _ in places])
    notes = tuple(
        Note(said, span)
        for (_, said), span in zip(places, spans, strict=True)
        if said != "here" and span is not NOWHERE
    )
    first = spans[0] if spans else NOWHERE
    if notes and notes[0].span is first:
        first = notes[0].span
    return CuError(Diagnostic(_CODES[exit_code], f"emulator: {reason[1]}", first, notes))


def _spans(program: Program, addresses: list[str]) -> list[Span]:
    """The kernel statement of each return address: the innermost frame of its inline chain that lies in the kernel text."""
    return [_span(program, frames) for frames in _chains(program.path, addresses)]


def _span(program: Program, frames: list[_Frame]) -> Span:
    for frame in frames:
        if frame.file == program.text_file and 0 < frame.line <= len(program.source.line_starts):
            return Span.whole_line(program.source, frame.line)
    return NOWHERE


def _chains(executable: Path, addresses: list[str]) -> list[list[_Frame]]:
    """The inlined calls at each address, innermost first; empty where the debug information cannot be read."""
    if not addresses:
        return []
    before = [hex(int(address, 16) - 1) for address in addresses]  # a return address lies after its call
    try:
        command = ["addr2line", "-a", "-i", "-e", str(executable), *before]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [[] for _ in addresses]
    chains: list[list[_Frame]] = []
    for line in text.splitlines():
        if line.startswith("0x"):
            chains.append([])
        elif chains and (match := re.match(r"(.*):(\d+)", line)):
            chains[-1].append(_Frame(Path(match[1]), int(match[2])))
    return chains
