"""CuIR text to nodes. Nothing of the text is ever evaluated or executed; Lark's exceptions end here."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lark import PostLex

from cubridge.ir.build import Builder
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Expr, Kernel
from cubridge.ir.source import SourceFile, Span

MAX_BYTES: Final = 1 << 20
_GRAMMAR: Final = Path(__file__).with_name("cuir.lark")

_HELP: Final = {
    "and": "write `&`: operators of CuIR have no short circuit",
    "or": "write `|`: operators of CuIR have no short circuit",
    "not": "write `~`",
    "if": "write `where(condition, a, b)`",
    "else": "write `where(condition, a, b)`",
    "elif": "write `else:` and an `if` inside",
    "lambda": "CuIR has no functions but its regions",
    "import": "CuIR reads no other files",
    "\t": "indent with spaces",
}


def parse(source: str | SourceFile, name: str = "<kernel>") -> Kernel:
    """The kernel of a CuIR text; `name` stands for that of its file where `source` is none.
    Errors: CU101 syntax, CU102 version, CU103 a word that CuIR does not have; the first one found."""
    file = source if isinstance(source, SourceFile) else SourceFile.from_text(name, source)
    return Builder(file).kernel(_tree(file, "kernel"))


def parse_expr(source: str | SourceFile, name: str = "<expression>") -> Expr:
    """One expression, as regions, specs and pass options have them. Errors: as `parse`."""
    file = source if isinstance(source, SourceFile) else SourceFile.from_text(name, source)
    return Builder(file).expression(_tree(file, "expression"))


@cache
def _lark() -> Lark:
    return Lark(
        _GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        start=["kernel", "expression"],
        propagate_positions=True,
        maybe_placeholders=True,
        postlex=_Layout(),
    )


class _Layout(PostLex):
    """Turns newlines into blocks: a deeper line opens one, a line back at an outer depth closes those between."""

    always_accept = ("_NEWLINE",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        open_brackets = 0
        depths = [0]
        token = None
        for token in stream:
            if token.type == "_NEWLINE":
                if open_brackets == 0:
                    yield token
                    yield from _step(token, depths)
                continue
            open_brackets += (token.type in ("LPAR", "LSQB")) - (token.type in ("RPAR", "RSQB"))
            yield token
        if token is not None:
            for _ in depths[1:]:
                yield _mark("_DEDENT", token)


def _step(newline: Token, depths: list[int]) -> Iterator[Token]:
    """The block tokens of a new line, indented as the last line of `newline` says."""
    depth = len(newline) - newline.rindex("\n") - 1 if "\n" in newline else depths[-1]
    if depth > depths[-1]:
        depths.append(depth)
        yield _mark("_INDENT", newline)
        return
    while depth < depths[-1]:
        depths.pop()
        yield _mark("_DEDENT", newline)
    if depth != depths[-1]:
        raise _BadIndent(newline)


def _mark(kind: str, newline: Token) -> Token:
    """A token without text where the next line begins."""
    return Token(kind, "", newline.end_pos, newline.end_line, newline.end_column, end_pos=newline.end_pos)


class _BadIndent(Exception):
    """A line that is indented as no open block is."""

    def __init__(self, newline: Token) -> None:
        super().__init__()
        self.end = newline.end_pos or 0


def _tree(file: SourceFile, start: str) -> Tree[Token]:
    # One character per byte, so that Lark's offsets are ours; beyond ASCII only comments may go.
    text = _checked_text(file)
    if start == "kernel" and text.lstrip(" ")[0] not in "#\r\n" and text.startswith(" "):
        raise CuError(Diagnostic("CU101", "the first line is indented", Span(file, 0, 1)))
    try:
        return _lark().parse(text, start=start)
    except UnexpectedInput as error:
        raise CuError(_syntax_error(file, error)) from None
    except _BadIndent as error:
        span = Span(file, error.end, error.end)
        raise CuError(Diagnostic("CU101", "this line is indented as no block around it is", span)) from None


def _checked_text(file: SourceFile) -> str:
    if len(file.data) > MAX_BYTES:
        raise CuError(Diagnostic("CU101", f"the text is longer than {MAX_BYTES} bytes", Span(file, 0, 0)))
    try:
        file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CuError(Diagnostic("CU101", "the text is not UTF-8", Span(file, error.start, error.end))) from None
    text = file.data.decode("latin-1")
    for at, char in enumerate(text):
        if char < " " and char != "\n" and not text.startswith("\r\n", at):
            span = Span(file, at, at + 1)
            raise CuError(Diagnostic("CU101", f"control character {char!r}", span, help=_HELP.get(char)))
    return text if text.endswith("\n") else text + "\n"


def _syntax_error(file: SourceFile, error: UnexpectedInput) -> Diagnostic:
    if isinstance(error, UnexpectedToken) and error.token.type not in ("$END", "_DEDENT", "_INDENT", "_NEWLINE"):
        word = str(error.token)
        start = error.pos_in_stream or 0
        span = Span(file, start, start + len(word))
        kind = "word" if keyword.iskeyword(word) else "token"
        return Diagnostic("CU101", f"{kind} `{word}` has no place here", span, help=_HELP.get(word))
    if isinstance(error, UnexpectedCharacters):
        start = error.pos_in_stream or 0
        char = file.data[start:].decode("utf-8", errors="replace")[:1]
        return Diagnostic(
            "CU101", f"character `{char}` has no place here", Span(file, start, start + len(char.encode()))
        )
    return _layout_error(file, error)


def _layout_error(file: SourceFile, error: UnexpectedInput) -> Diagnostic:
    token = error.token if isinstance(error, UnexpectedToken) else None
    if token is None or token.type == "$END" or not file.data[token.start_pos :].strip():
        end = len(file.data.rstrip())
        return Diagnostic("CU101", "the text ends in the middle of something", Span(file, end, end))
    start = token.start_pos or 0
    if token.type == "_INDENT":
        return Diagnostic(
            "CU101", "this line is indented, but nothing above it opens a block", Span(file, start, start)
        )
    return Diagnostic("CU101", "the line ends in the middle of something", Span(file, start, start))
