"""Options of passes: each is one string, read into the type of the pass's field and printed back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Final, Literal, TypeVar, get_args, get_origin, get_type_hints

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
    says: str
    read: Callable[[Text], object]
    write: Callable[..., str]


def _plain(kind: type[int] | type[float] | type[bool], says: str, pattern: str) -> _Form:
    """A number or a truth as Python spells it."""
    spelling = re.compile(pattern)

    def read(text: Text) -> object:
        if not spelling.fullmatch(text.value):
            raise fault("CU504", f"`{text.value}` is not {says}", text.span)
        return text.value == "True" if kind is bool else kind(text.value)

    return _Form(says, read, repr)


def _read_text(text: Text) -> str:
    if not text.value.isprintable() or '"' in text.value:
        raise fault("CU504", "a text has no quotes and stands on one line", text.span)
    return text.value


def _one_of(words: tuple[str, ...]) -> _Form:
    def read(text: Text) -> str:
        if text.value not in words:
            raise fault("CU504", f"`{text.value}` is none of {', '.join(words)}", text.span)
        return text.value

    return _Form(" or ".join(f"`{w}`" for w in words), read, str)


_EXPR: Final = _Form("an expression", expression, print_expr)
_FORMS: Final[dict[object, _Form]] = {
    int: _plain(int, "an integer", r"-?\d{1,18}"),
    float: _plain(float, "a number", r"-?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,3})?"),
    bool: _plain(bool, "True or False", r"True|False"),
    str: _Form("a text", _read_text, str),
    Word: _Form("a word", lambda text: Word(text.value, text.span), lambda word: word.value),
    Expr: _EXPR,
    Expr | None: _EXPR,
    tuple[Expr, ...]: _Form(
        "expressions, separated by commas", _expressions, lambda parts: ", ".join(print_expr(p) for p in parts)
    ),
    tuple[RowTerm, ...]: _Form(
        "`name = sum of expression`, with `max` or `min` for `sum`, and ` over condition` for fewer keys; several are separated by "
        "semicolons",
        _rows,
        lambda rows: "; ".join(_print_row(r) for r in rows),
    ),
}


def _form(hint: object) -> _Form | None:
    """How options of a type are read and printed; None for a type that options cannot have."""
    words = get_args(hint) if get_origin(hint) is Literal else ()
    return _one_of(words) if words and all(isinstance(w, str) for w in words) else _FORMS.get(hint)


def forms(cls: type[Pass]) -> dict[str, _Form]:
    """By option. Errors: NameError for a type that is not imported."""
    hints = get_type_hints(cls)
    found = {f.name: _form(hints[f.name]) for f in fields(cls)}
    return {name: form for name, form in found.items() if form is not None}


def kinds(cls: type[Pass]) -> dict[str, str]:
    """What each option is, in words."""
    return {name: form.says for name, form in forms(cls).items()}


def defaults(cls: type[Pass]) -> dict[str, str]:
    """The options that have a default, as strings."""
    known = forms(cls)
    given = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
    return {name: "" if value is None else known[name].write(value) for name, value in given.items()}


def unreadable(cls: type[Pass]) -> str | None:
    """Why its options cannot be read from a text, to go on after its name."""
    try:
        known = forms(cls)
    except NameError as error:
        return f"has an option of a type that is not imported: {error}"
    odd = [f.name for f in fields(cls) if f.name not in known]
    return f"has an option `{odd[0]}` of a type that no text gives" if odd else None


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
    known_forms = forms(cls)
    values = {name: known_forms[name].read(text) for name, text in options.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise fault("CU504", f"`{cls.name}`: {error}", span) from error


def printed(step: Pass) -> Iterator[tuple[str, str]]:
    """The options of a pass as strings, in the order of its fields; those that have their default are left out."""
    known = forms(type(step))
    for option in fields(step):
        value = getattr(step, option.name)
        if not _is_default(option, value):
            yield option.name, known[option.name].write(value)


def _is_default(option: Field[object], value: object) -> bool:
    return option.default is not MISSING and value == option.default
