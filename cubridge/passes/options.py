"""Options of passes: each is one string, read into the type of the pass's field and printed back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Final, Literal, TypeVar, get_type_hints

from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Expr, Node
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr
from cubridge.ir.source import NOWHERE, SourceFile, Span
from cubridge.ir.walk import map_children
from cubridge.passes.base import Pass, fault

N = TypeVar("N", bound=Node)
Kind = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one option, at byte `start` of `file`."""

    value: str
    file: SourceFile
    start: int

    @property
    def span(self) -> Span:
        return Span(self.file, self.start, self.start + len(self.value.encode()))

    def part(self, start: int, end: int) -> Text:
        """The characters [start, end) of this text."""
        return Text(self.value[start:end], self.file, self.start + len(self.value[:start].encode()))


@dataclass(frozen=True, slots=True)
class Word:
    """A value that is text: a name, a type."""

    value: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RowTerm:
    """One number per row: `kind` over visible keys of `body`; of those alone for which `over` holds, if given."""

    name: str
    kind: Kind
    body: Expr
    over: Expr | None = None


# ---- expressions -----------------------------------------------------------------------------------------------------


def expression(text: Text) -> Expr:
    """The expression, its places in the text that the option stands in. Errors: CU1xx."""
    blank = SourceFile(text.file.name, b" " * text.start + text.value.encode())
    try:
        return _placed(parse_expr(blank), text.file)
    except CuError as error:
        moved = (replace(d, span=Span(text.file, d.span.start, d.span.end)) for d in error.diagnostics)
        raise CuError(*moved, exit_code=error.exit_code) from None


def _placed(node: N, file: SourceFile) -> N:
    inner = map_children(node, lambda child: _placed(child, file))
    return replace(inner, span=Span(file, node.span.start, node.span.end))


def _expressions(text: Text) -> tuple[Expr, ...]:
    return tuple(expression(part) for part in _split(text, ","))


def _split(text: Text, separator: str) -> Iterator[Text]:
    """The parts between separators outside of brackets; none of an empty text."""
    start = depth = 0
    for at, char in enumerate(text.value):
        depth += (char in "([") - (char in ")]")
        if char == separator and depth == 0:
            yield text.part(start, at)
            start = at + 1
    if text.value[start:].strip():
        yield text.part(start, len(text.value))


# ---- row reductions --------------------------------------------------------------------------------------------------

_ROW: Final = re.compile(r"\s*([A-Za-z_]\w*) = (sum|max|min) of (.+?)(?: over (.+))?\s*")


def _rows(text: Text) -> tuple[RowTerm, ...]:
    return tuple(_row(part) for part in _split(text, ";"))


def _row(text: Text) -> RowTerm:
    match = _ROW.fullmatch(text.value)
    if match is None:
        raise fault(
            "CU504",
            "not a row reduction",
            text.span,
            help="write `l = sum of exp(x - m)`, with ` over j < i` to restrict it",
        )
    name, kind, body, over = (None if match[n] is None else text.part(*match.span(n)) for n in range(1, 5))
    assert name is not None and kind is not None and body is not None
    kinds: dict[str, Kind] = {"sum": "sum", "max": "max", "min": "min"}
    return RowTerm(name.value, kinds[kind.value], expression(body), None if over is None else expression(over))


def _print_row(row: RowTerm) -> str:
    over = "" if row.over is None else f" over {print_expr(row.over)}"
    return f"{row.name} = {row.kind} of {print_expr(row.body)}{over}"


# ---- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Form:
    read: Callable[[Text], object]
    write: Callable[..., str]


_EXPR: Final = _Form(expression, print_expr)
_FORMS: Final[dict[object, _Form]] = {
    Word: _Form(lambda text: Word(text.value, text.span), lambda word: word.value),
    Expr: _EXPR,
    Expr | None: _EXPR,
    tuple[Expr, ...]: _Form(_expressions, lambda parts: ", ".join(print_expr(p) for p in parts)),
    tuple[RowTerm, ...]: _Form(_rows, lambda rows: "; ".join(_print_row(r) for r in rows)),
}


def build(cls: type[Pass], options: dict[str, Text], span: Span) -> Pass:
    """The pass with these options. Errors: CU502 for one that it does not have, CU504 for one that it needs or cannot read."""
    known = {f.name: f for f in fields(cls)}
    for name, text in options.items():
        if name not in known:
            listed = ", ".join(known) or "none"
            raise fault("CU502", f"`{cls.name}` has no option `{name}`", text.span, help=f"its options: {listed}")
    for option in known.values():
        if option.name not in options and option.default is MISSING:
            raise fault("CU504", f"`{cls.name}` needs the option `{option.name}`", span)
    hints = get_type_hints(cls)
    values = {name: _FORMS[hints[name]].read(text) for name, text in options.items()}
    return cls(**values)


def printed(step: Pass) -> Iterator[tuple[str, str]]:
    """The options of a pass as strings, in the order of its fields; those that have their default are left out."""
    hints = get_type_hints(type(step))
    for option in fields(step):
        value = getattr(step, option.name)
        if not _is_default(option, value):
            yield option.name, _FORMS[hints[option.name]].write(value)


def _is_default(option: Field[object], value: object) -> bool:
    return option.default is not MISSING and value == option.default
