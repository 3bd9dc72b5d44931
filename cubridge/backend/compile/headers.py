"""The headers that a CUDA text includes, as texts: what is compiled is exactly what is hashed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.source import SourceFile, Span

KERNELS_DIR = Path(__file__).resolve().parents[2] / "kernels"

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', re.MULTILINE)


def include_closure(source: SourceFile, include_dirs: Iterable[Path] = (KERNELS_DIR,)) -> dict[str, SourceFile]:
    """Every header that `source` reaches by `#include "NAME"`, by NAME. A name is looked up beside the file that
    includes it, then in `include_dirs`. One found nowhere is left out: the compiler reports it, unless conditional.
    Errors: CU804 if one NAME stands for two different texts."""
    directories = tuple(include_dirs)
    found: dict[str, SourceFile] = {}
    first_use: dict[str, Span] = {}
    pending: list[tuple[SourceFile, Path]] = [(source, Path(source.name).parent)]
    while pending:
        file, beside = pending.pop()
        for match in _INCLUDE.finditer(file.data):
            name, span = match[1].decode(), Span(file, match.start(1), match.end(1))
            path = _find(name, (beside, *directories))
            if path is None:
                continue
            header = SourceFile(name, path.read_bytes())
            if name not in found:
                found[name], first_use[name] = header, span
                pending.append((header, path.parent))
            elif found[name].data != header.data:
                raise _ambiguous(name, span, first_use[name])
    return dict(sorted(found.items()))


def uses_system_headers(files: Iterable[SourceFile]) -> bool:
    return any(re.search(rb"^[ \t]*#[ \t]*include[ \t]+<", f.data, re.MULTILINE) for f in files)


def _find(name: str, directories: Iterable[Path]) -> Path | None:
    return next((d / name for d in directories if (d / name).is_file()), None)


def _ambiguous(name: str, span: Span, first: Span) -> CuError:
    note = Note("the first text of this name is included here", first)
    message = f'"{name}" stands for two different headers'
    return CuError(Diagnostic("CU804", message, span, notes=(note,), help="give one of them another name"))
