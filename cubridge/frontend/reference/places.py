"""Places in the user's Python: the innermost frame that is neither torch's nor ours, with its columns."""

from __future__ import annotations

import linecache
import sys
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Final

from cubridge.ir.diagnostics import Note
from cubridge.ir.source import NOWHERE, SourceFile, Span

_OURS: Final = str(Path(__file__).resolve().parents[2])


@cache
def _foreign_prefixes() -> tuple[str, ...]:
    import torch

    standard = str(Path(linecache.__file__).resolve().parent)
    return (str(Path(torch.__file__).resolve().parent), _OURS, standard, "<frozen", "<@beartype", "<eval_with_key>")


@cache
def _real(filename: str) -> str:
    """A package may be reached by a link."""
    return filename if filename.startswith("<") else str(Path(filename).resolve())


@cache
def _is_users(filename: str) -> bool:
    return "site-packages" not in _real(filename) and not _real(filename).startswith(_foreign_prefixes())


def _is_ours(filename: str) -> bool:
    return _real(filename).startswith(_OURS)


@cache
def source_file(filename: str) -> SourceFile:
    """The text as Python reads it; empty where there is none (an interactive session)."""
    return SourceFile.from_text(filename, "".join(linecache.getlines(filename)))


def forget_sources() -> None:
    """Files may have changed since they were read."""
    linecache.checkcache()
    source_file.cache_clear()
    _span_of.cache_clear()


@cache
def _span_of(code: CodeType, instruction: int) -> Span:
    position = next(islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
    return _span(code.co_filename, *position)


def _span(filename: str, line: int | None, end_line: int | None, column: int | None, end_column: int | None) -> Span:
    file = source_file(filename)
    if line is None or line > len(file.line_starts) or not file.data:
        return NOWHERE
    if column is None or end_column is None or end_line is None or end_line > len(file.line_starts):
        return Span.whole_line(file, line)
    start = file.line_starts[line - 1] + column
    end = file.line_starts[end_line - 1] + end_column
    return Span(file, start, max(start, end))


def user_span() -> Span:
    """Where the user's code stands now; the definition of the reference where none of it runs, but torch's or ours."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            return _span_of(frame.f_code, frame.f_lasti)
        if _runs_reference(frame):
            return frame.f_locals["reference"].span
        frame = frame.f_back
    return NOWHERE


def _runs_reference(frame: FrameType) -> bool:
    """Is it where a reference is called to be recorded?"""
    return frame.f_code.co_name == "run_reference" and _is_ours(frame.f_code.co_filename)


def inside_operation() -> bool:
    """Is torch working on an operation now, rather than the user's code computing with sizes?"""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not _is_users(frame.f_code.co_filename):
        if frame.f_code.co_name in ("__torch_dispatch__", "__torch_function__") and _is_ours(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def is_torch_asking() -> bool:
    """Did torch or this package call what calls this, rather than the user's code or a library of it?"""
    caller = sys._getframe(2).f_code  # pyright: ignore[reportPrivateUsage]
    return _real(caller.co_filename).startswith((_foreign_prefixes()[0], _OURS))


def call_chain(limit: int = 3) -> tuple[Note, ...]:
    """The callers of where the user's code stands now, inside the user's code."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            frames.append(frame)
        elif _runs_reference(frame):
            break
        frame = frame.f_back
    return tuple(Note("called from here", _span_of(f.f_code, f.f_lasti)) for f in frames[1 : limit + 1])


def error_span(traceback: TracebackType | None) -> Span:
    """The innermost place of the user's code in a traceback."""
    found = NOWHERE
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if _is_users(code.co_filename):
            found = _span_of(code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found
