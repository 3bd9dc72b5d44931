"""Characters that make a compiler see another text than its syntax tree: spliced lines, trigraphs, raw strings, odd blanks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.source import SourceFile, Span

CODE: Final = "CU421"

_ODD: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_TRIGRAPH: Final = re.compile(r"\?\?[=/'()!<>-]")
_RAW_STRING: Final = re.compile(r'\b(?:u8|[uUL])?R"')
_DIGRAPH: Final = re.compile(r"%:")
_STRING: Final = re.compile(r'"(?:\\.|[^"\\\n])*"')
_CHARACTER: Final = re.compile(r"'(?:\\.|[^'\\\n])'")
_SPLICE: Final = re.compile(r"\\[ \t]*\r?\Z")
_DIRECTIVE: Final = re.compile(r"[ \t]*#")


def character_faults(file: SourceFile, text: str, trivia: re.Pattern[str]) -> Iterator[Diagnostic]:
    """`text`: the bytes of `file` as latin-1; `trivia`: its strings, characters and comments."""
    yield from _found(file, text, _ODD, "a control character stands here", "use blanks and line ends alone")
    yield from _found(file, text, _TRIGRAPH, "this is a trigraph, which some compilers replace", "write it otherwise")
    for match in trivia.finditer(text):
        yield from _token_faults(file, text, match)
    code = trivia.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0].startswith("/") else m[0], text)
    yield from _splices(file, code)
    bare = _STRING.sub(lambda m: '"' + " " * (len(m[0]) - 2) + '"', code)
    yield from _found(file, bare, _RAW_STRING, "a raw string stands here", "write it without `R`")
    yield from _found(file, bare, _DIGRAPH, "`%:` is another spelling of `#`", "write `#`")


def _found(file: SourceFile, text: str, what: re.Pattern[str], message: str, help: str) -> Iterator[Diagnostic]:
    match = what.search(text)
    if match is not None:
        yield Diagnostic(CODE, message, Span(file, match.start(), match.end()), help=help)


def _token_faults(file: SourceFile, text: str, match: re.Match[str]) -> Iterator[Diagnostic]:
    """A comment that takes in the next line or a directive's end, a quote that is no character."""
    span = Span(file, match.start(), match.end())
    word = match[0]
    if word.startswith("//") and _SPLICE.search(word):
        message = "this comment ends in a backslash, which makes the next line part of it"
        yield Diagnostic(CODE, message, span, help="take the backslash away")
    elif word.startswith("/*") and "\n" in word and _DIRECTIVE.match(text, text.rfind("\n", 0, match.start()) + 1):
        yield Diagnostic(CODE, "a comment of several lines begins in a directive", span, help="put it above")
    elif word.startswith("'") and (not _CHARACTER.fullmatch(word) or text[match.start() - 1 : match.start()].isalnum()):
        yield Diagnostic(CODE, "this quote begins no character", span, help="write numbers without `'`")


def _splices(file: SourceFile, code: str) -> Iterator[Diagnostic]:
    """A backslash at a line's end continues `#define`, nothing else; with blanks behind it, compilers differ."""
    at, continued = 0, False
    for line in code.split("\n"):
        directive = continued or _DIRECTIVE.match(line) is not None
        match = _SPLICE.search(line)
        continued = directive and match is not None
        if match is not None and (not directive or match[0].rstrip("\r") != "\\"):
            span = Span(file, at + match.start(), at + match.start() + 1)
            help = "end the line without it" if not directive else "take the blanks behind it away"
            yield Diagnostic(CODE, "this backslash continues a line, and not every reader takes it so", span, help=help)
        at += len(line) + 1
