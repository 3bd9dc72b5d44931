"""What the tool says about bad input. One pure `render` feeds terminal, tests and repair prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cubridge.ir.source import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class Note:
    """A second place that explains the first."""

    message: str
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault or warning: `code` is a key of `codes.CODES`, `help` says what to do."""

    code: str
    message: str
    span: Span = NOWHERE
    notes: tuple[Note, ...] = ()
    help: str | None = None
    severity: str = "error"


class CuError(Exception):
    """Bad input. `exit_code` is what `cuirc` ends with: 1 failed, 3 numbers differ, 4 unsupported, 5 tool missing, 6 time."""

    def __init__(self, *diagnostics: Diagnostic, exit_code: int = 1) -> None:
        super().__init__(diagnostics[0].message if diagnostics else "no diagnostics")
        self.diagnostics = diagnostics
        self.exit_code = exit_code

    def __str__(self) -> str:
        return render(self.diagnostics)

    def __reduce__(self) -> tuple[Callable[..., CuError], tuple[object, ...]]:
        """Exceptions are pickled by their message unless they say otherwise; this one goes between processes whole."""
        return _again, (type(self), self.diagnostics, self.exit_code)


def _again(kind: type[CuError], diagnostics: tuple[Diagnostic, ...], exit_code: int) -> CuError:
    error = kind(*diagnostics)
    error.exit_code = exit_code
    return error


class Refused(CuError):
    """Input that is understood and that the tool does not support."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics, exit_code=4)


class InternalError(Exception):
    """Our own fault; never caused by bad input."""


def render(diagnostics: Iterable[Diagnostic]) -> str:
    """The text of diagnostics, each as `file:line:col: error[CODE]: message`, the line, a caret, notes and help."""
    return "\n".join(_render_one(d) for d in diagnostics)


def _render_one(diagnostic: Diagnostic) -> str:
    lines = [_headline(diagnostic.span, f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.message)]
    lines += _excerpt(diagnostic.span, "^")
    for note in diagnostic.notes:
        lines.append(_headline(note.span, "note", note.message))
        lines += _excerpt(note.span, "-")
    if diagnostic.help:
        lines.append(f"help: {diagnostic.help}")
    return "\n".join(lines)


def _headline(span: Span, kind: str, message: str) -> str:
    return f"{kind}: {message}" if span is NOWHERE else f"{span}: {kind}: {message}"


def _excerpt(span: Span, mark: str) -> list[str]:
    if span is NOWHERE or not span.file.data:
        return []
    line, column = span.location
    text = span.file.line(line).replace("\t", " ")
    width = max(1, min(len(span.text.split("\n", 1)[0].rstrip("\r")), len(text) - column + 1))
    gutter = f"{line} | "
    return [gutter + text, " " * (len(gutter) - 2) + "| " + " " * (column - 1) + mark * width]


def to_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
    """Diagnostics as plain data for editors."""
    return [
        {
            "code": d.code,
            "severity": d.severity,
            "message": d.message,
            **_json_place(d.span),
            "notes": [{"message": n.message, **_json_place(n.span)} for n in d.notes],
            "help": d.help,
        }
        for d in diagnostics
    ]


def _json_place(span: Span) -> dict[str, object]:
    if span is NOWHERE:
        return {"file": None}
    line, column = span.location
    end_line, end_column = span.file.location(span.end)
    return {"file": span.file.name, "line": line, "column": column, "end_line": end_line, "end_column": end_column}
