"""CuIR whose statements say, in comments at the ends of their lines, which lines of a kernel text they stand for: `# 210-212`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Kernel, Stmt
from cubridge.ir.parser import parse
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.walk import blocks

CODE: Final = "CU718"
_COMMENT: Final = re.compile(r"#\s*(\d{1,6}(?:\s*-\s*\d{1,6})?(?:\s*,\s*\d{1,6}(?:\s*-\s*\d{1,6})?)*)(?!\d)")

S = TypeVar("S", bound=Stmt)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A statement of the kernel's body, its place in the CuIR, and the first and last line of each run of lines of the text."""

    statement: Stmt
    place: Span
    runs: tuple[tuple[int, int], ...]

    @property
    def lines(self) -> frozenset[int]:
        return frozenset(line for first, last in self.runs for line in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class Anchored:
    """`kernel`: its statements have their places in the kernel text."""

    kernel: Kernel
    anchors: tuple[Anchor, ...]


def read_anchored(cuir: SourceFile, text: SourceFile) -> Anchored:
    """Errors: CU1xx; CU718 for every statement of the body without a comment, or with lines that the text does not have."""
    kernel = parse(cuir)
    anchors: list[Anchor] = []
    faults: list[Diagnostic] = []
    for statement in statements(kernel.body):
        runs = _runs(cuir.line(statement.span.location[0]))
        if not runs:
            faults.append(_fault("this statement does not say which lines of the text it stands for", statement.span))
        elif not all(1 <= first <= last <= len(text.line_starts) for first, last in runs):
            faults.append(_fault(f"the text has lines 1 to {len(text.line_starts)}", statement.span))
        else:
            anchors.append(Anchor(statement, statement.span, runs))
    if faults:
        raise CuError(*faults)
    places = (_span(text, a.runs) for a in anchors)
    return Anchored(replace(kernel, body=_placed(kernel.body, places)), tuple(anchors))


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements of a body, those of inner blocks after the one that opens them."""
    for statement in body:
        yield statement
        for _, inner in blocks(statement):
            yield from statements(inner)


def _runs(line: str) -> tuple[tuple[int, int], ...]:
    match = _COMMENT.search(line)
    if match is None:
        return ()
    ends = ([int(n) for n in part.split("-")] for part in match[1].split(","))
    return tuple((run[0], run[-1]) for run in ends)


def _span(text: SourceFile, runs: tuple[tuple[int, int], ...]) -> Span:
    """The first run."""
    return Span.whole_line(text, runs[0][0]).to(Span.whole_line(text, runs[0][1]))


def _placed(body: tuple[Stmt, ...], places: Iterator[Span]) -> tuple[Stmt, ...]:
    """`places`: one for each statement, in the order of `statements`."""
    return tuple(_place(s, next(places), places) for s in body)


def _place(statement: Stmt, span: Span, inner: Iterator[Span]) -> Stmt:
    return replace(statement, span=span, **{name: _placed(body, inner) for name, body in blocks(statement)})


def _fault(message: str, span: Span) -> Diagnostic:
    help = "end each line of the kernel's body with its lines in a comment, `# 210` or `# 210-212`"
    return Diagnostic(CODE, message, span, help=help)
