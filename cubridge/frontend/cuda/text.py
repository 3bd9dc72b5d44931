"""CUDA text to syntax trees: the preprocessor of one instantiation, and masking that keeps every byte at its place.

What the compiler of this instantiation does not see (comments, directives, inactive branches) becomes blanks in a copy of the
same length, attribute macros too; the copy is parsed, and its byte ranges hold for the original. Text is handled as latin-1, one
character per byte, so that offsets are bytes; no name or number of CUDA has other characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser, Tree

from cubridge.frontend.cuda.bounds import (
    MAX_BYTES,
    MAX_CONDITIONS,
    MAX_DIRECTIVES,
    MAX_MACROS,
    check_brackets,
    check_depth,
    too_large,
)
from cubridge.frontend.cuda.characters import character_faults
from cubridge.frontend.cuda.conditions import holds
from cubridge.frontend.cuda.macros import Expansion, Macro
from cubridge.frontend.cuda.packaged import is_packaged
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

MAX_HEADERS: Final = 100
_MAX_FAULTS: Final = 50

Headers = Callable[[str], SourceFile | None]
"""From the name in `#include "name"` to its text; None if there is none."""

_LANGUAGE: Final = Language(tree_sitter_cuda.language())
_TRIVIA: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_DIRECTIVE: Final = re.compile(r"[ \t]*#[ \t]*(\w*)[ \t]*((?:\\\r?\n|[^\n])*)")
_DEFINE: Final = re.compile(r"(\w+)(\([^)]*\))?[ \t]*(.*)", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_NUMBER: Final = re.compile(r"\b\d\w*")
_NOT_BLANK: Final = re.compile(r"[^\s]")
_ATTRIBUTES: Final = frozenset(("__device__", "__forceinline__", "__host__", "static", "inline"))
_BOM: Final = "\xef\xbb\xbf"
_PRAGMA: Final = re.compile(r"once|unroll( +\(?\w+\)?)?")
_HEADER: Final = re.compile(r'"([^"]+)"')


@dataclass(frozen=True, slots=True)
class KernelHead:
    """A use of a macro that stands for `extern "C" __global__ void __launch_bounds__(..)`."""

    start: int
    launch_bounds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedText:
    """One file: `masked` has the length of the original."""

    file: SourceFile
    masked: bytes = field(repr=False)
    tree: Tree = field(repr=False)
    kernel_heads: tuple[KernelHead, ...] = ()

    def span(self, node: Node) -> Span:
        return Span(self.file, node.start_byte, node.end_byte)

    def text(self, node: Node) -> str:
        return self.masked[node.start_byte : node.end_byte].decode("latin-1")

    def is_const(self, node: Node) -> bool:
        return any(c.type == "type_qualifier" and self.text(c) in ("const", "constexpr") for c in node.children)


@dataclass(frozen=True, slots=True)
class TestedName:
    """A name in `#if` or `#ifdef` that no `#define` above it defines and that is no default of the text."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class TranslationUnit:
    """The texts of one instantiation, headers before their users, the kernel's own last. `tested`: by texts not packaged."""

    texts: tuple[ParsedText, ...]
    macros: Mapping[str, Macro]
    tested: tuple[TestedName, ...] = ()

    @property
    def main(self) -> ParsedText:
        return self.texts[-1]


@cache
def folder_headers(*folders: Path) -> Headers:
    """Headers below folders, the first that has one; a name that leads out of a folder is not found there."""

    def find(name: str) -> SourceFile | None:
        for folder in folders:
            path = (folder / name).resolve()
            if path.is_relative_to(folder.resolve()) and path.is_file():
                return SourceFile(name, path.read_bytes())
        return None

    return find


def read_unit(source: SourceFile, macros: Mapping[str, int | str], headers: Headers) -> TranslationUnit:
    """Preprocess and parse a kernel text for the given macro values.
    Errors: CU420 text that is no CUDA C++ or too deep, CU421 a directive that cannot be followed."""
    given = {name: Macro(name, str(value), given=True) for name, value in macros.items()}
    reader = _Preprocessor(headers, given)
    reader.read(source)
    if reader.faults:
        raise CuError(*reader.faults)
    expansion = Expansion(reader.macros)
    expansion.check_macros()
    for file, text in reader.texts:
        expansion.check_text(file, text)
    texts = tuple(_parse(file, text, reader.macros) for file, text in reader.texts)
    faults = [*islice((fault for text in reversed(texts) for fault in _syntax_faults(text)), _MAX_FAULTS)]
    if faults:
        raise CuError(*faults)
    return TranslationUnit(texts, reader.macros, tuple(reader.tested))


def is_empty(source: SourceFile) -> bool:
    """Has the text nothing but blanks, and perhaps a byte order mark?"""
    return not source.data.decode("latin-1").removeprefix(_BOM).strip()


def parse_snippet(text: str) -> Tree:
    """A tree of a piece of text, such as a macro's replacement."""
    return _tree(text.encode("latin-1"))


@lru_cache(maxsize=256)
def _tree(text: bytes) -> Tree:
    return Parser(_LANGUAGE).parse(text)


def without_comments(file: SourceFile) -> str:
    """The text of a file, one character per byte, with blanks in place of comments. Errors: CU420."""
    return _without_comments(file)[0]


@lru_cache(maxsize=64)
def _without_comments(file: SourceFile) -> tuple[str, tuple[Diagnostic, ...]]:
    """Blanks in place of comments, as latin-1, and the faults of its characters. Errors: CU420."""
    written = file.data.decode("latin-1")
    text = _TRIVIA.sub(lambda m: m[0] if m[0][0] in "\"'" else blank(m[0]), written)
    check_brackets(file, text)
    text = blank(_BOM) + text[len(_BOM) :] if text.startswith(_BOM) else text
    return text, tuple(character_faults(file, written, _TRIVIA))


class _Preprocessor:
    def __init__(self, headers: Headers, macros: dict[str, Macro]) -> None:
        self.headers = headers
        self.macros = macros
        self.tested: list[TestedName] = []
        self.directives = 0
        self.texts: list[tuple[SourceFile, str]] = []
        self.faults: list[Diagnostic] = []
        self.seen: set[str] = set()

    def read(self, file: SourceFile) -> None:
        """Append the active text of `file`, after that of its headers."""
        if len(file.data) > MAX_BYTES:
            raise CuError(Diagnostic("CU420", f"the text is longer than {MAX_BYTES} bytes", Span(file, 0, 0)))
        self.seen.add(file.name)
        text, faults = _without_comments(file)
        self.faults += faults
        self.texts.append((file, self._active(file, text)))

    def _active(self, file: SourceFile, text: str) -> str:
        parts: list[str] = []
        branches: list[_Branch] = []
        at = 0
        while at < len(text):
            match = _DIRECTIVE.match(text, at)
            end = match.end() if match else text.find("\n", at)
            end = len(text) if end < 0 else end
            active = all(b.active for b in branches)
            if match:
                self._directive(match[1], match[2], Span(file, at, end), branches, text)
            parts.append(text[at:end] if active and not match else blank(text[at:end]))
            parts.append(text[end : end + 1])
            at = end + 1
        self.faults += [Diagnostic("CU421", "this `#if` has no `#endif`", b.span) for b in branches]
        return "".join(parts)

    def _directive(self, word: str, rest: str, span: Span, branches: list[_Branch], text: str) -> None:
        self._count_directive(branches, span)
        rest = re.sub(r"\\\r?\n", " ", rest).strip()
        active = all(b.active for b in branches)
        match word:
            case "if" | "ifdef" | "ifndef":
                default = word == "ifndef" and _is_default(rest, text[span.end :])
                truth = active and self._truth(word, rest, span, default)
                branches.append(_Branch(truth, truth, span, rest if active and default else ""))
            case "elifdef" | "elifndef":
                message = f"not every compiler follows `#{word}`"
                self.faults.append(Diagnostic("CU421", message, span, help="write `#elif defined(..)`"))
            case "elif" | "else" | "endif" if not branches:
                self.faults.append(Diagnostic("CU421", f"`#{word}` without `#if`", span))
            case "elif" | "else":
                self._next_branch(word, rest, span, branches)
            case "endif":
                branches.pop()
            case _ if active:
                self._active_directive(word, rest, span)
            case _:
                pass

    def _count_directive(self, branches: list[_Branch], span: Span) -> None:
        """Errors: CU421 for one more directive, macro or condition than a text may have."""
        self.directives += 1
        if self.directives > MAX_DIRECTIVES or len(self.macros) > MAX_MACROS:
            message = f"the text has more than {MAX_DIRECTIVES} directives or {MAX_MACROS} macros"
            raise too_large("CU421", message, span)
        if len(branches) > MAX_CONDITIONS:
            raise too_large("CU421", f"conditions are nested deeper than {MAX_CONDITIONS}", span)

    def _next_branch(self, word: str, rest: str, span: Span, branches: list[_Branch]) -> None:
        """The branch of an `#elif` or `#else` takes the place of the one before it."""
        last = branches.pop()
        if last.default and not is_packaged(span.file):
            self.tested.append(TestedName(last.default, last.span))
        surrounded = all(b.active for b in branches)
        if surrounded and last.taken and word == "elif":
            self._test_all(rest, span)  # not decided here, but its names are tested all the same
        truth = surrounded and not last.taken and (word == "else" or self._truth("if", rest, span))
        branches.append(_Branch(truth, last.taken or truth, last.span))

    def _active_directive(self, word: str, rest: str, span: Span) -> None:
        match word:
            case "define":
                self._define(rest, span)
            case "undef":
                message = "what a macro stands for must not change in a text"
                self.faults.append(Diagnostic("CU421", message, span, help="take another name for the second meaning"))
            case "include":
                self._include(rest, span)
            case "error":
                self.faults.append(Diagnostic("CU421", f"the text refuses this instantiation: {rest}", span))
            case "pragma" if _PRAGMA.fullmatch(rest):
                pass
            case "pragma":
                help = "`#pragma unroll` and `#pragma once` can"
                self.faults.append(Diagnostic("CU421", f"`#pragma {rest}` cannot be followed", span, help=help))
            case "":
                pass
            case _:
                self.faults.append(Diagnostic("CU421", f"`#{word}` is not a directive that can be followed", span))

    def _test(self, name: str, span: Span) -> None:
        """Note a name that a condition asks for."""
        if is_packaged(span.file):
            return
        if name not in self.macros or name.startswith("_"):
            self.tested.append(TestedName(name, span))

    def _test_all(self, condition: str, span: Span) -> None:
        for name in dict.fromkeys(_WORD.findall(_NUMBER.sub(" ", condition))):
            if name != "defined":
                self._test(name, span)

    def _truth(self, word: str, rest: str, span: Span, default: bool = False) -> bool:
        macros = self.macros
        if word != "if":
            if not _WORD.fullmatch(rest):
                self.faults.append(Diagnostic("CU421", f"`#{word}` takes one name", span))
            elif not default or rest.startswith("_"):
                self._test(rest, span)
            return (rest in macros) == (word == "ifdef")
        self._test_all(rest, span)
        Expansion(macros).check_text(span.file, rest, span)
        values = {name: m.body for name, m in macros.items() if m.params is None}
        truth = holds(rest, values)
        if truth is None:
            self.faults.append(Diagnostic("CU421", f"cannot decide `#if {rest}`", span, help="give its macros with -D"))
        return bool(truth)

    def _define(self, rest: str, span: Span) -> None:
        match = _DEFINE.match(rest)
        if match is None:
            self.faults.append(Diagnostic("CU421", "`#define` without a name", span))
            return
        name, params, body = match[1], match[2], " ".join(match[3].split())
        names = None if params is None else tuple(p.strip() for p in params[1:-1].split(","))
        new = Macro(name, body, names, span=span)
        old = self.macros.get(name)
        if old is not None and (old.body, old.params) != (new.body, new.params):
            why = "the instantiation" if old.given else "the text above"
            self.faults.append(Diagnostic("CU421", f"`{name}` is defined again, unlike in {why}", span))
        self.macros[name] = new if old is None else old

    def _include(self, rest: str, span: Span) -> None:
        match = _HEADER.fullmatch(rest)
        if match is None:
            help = 'a kernel text needs no system header: base.cuh has the types, and `#include "NAME"` finds your own'
            self.faults.append(
                Diagnostic("CU421", f"`#include {rest}` is not read, so nothing may include it", span, help=help)
            )
            return
        name = match[1]
        if name in self.seen:
            return
        header = self.headers(name) if len(self.seen) < MAX_HEADERS else None
        if header is None:
            self.faults.append(Diagnostic("CU421", f"header `{name}` is not there", span))
            self.seen.add(name)
            return
        self.seen.add(name)
        self.read(header)


@dataclass(frozen=True, slots=True)
class _Branch:
    """An open `#if`: is its present branch active, was any. `default`: the name of `#ifndef NAME` before `#define NAME`."""

    active: bool
    taken: bool
    span: Span
    default: str = ""


def _is_default(name: str, rest: str) -> bool:
    """Does the text after `#ifndef NAME` go on with `#define NAME`?"""
    return re.match(rf"\s*#[ \t]*define[ \t]+{re.escape(name)}\b", rest) is not None


def blank(text: str) -> str:
    """As many blanks, lines kept."""
    return _NOT_BLANK.sub(" ", text)


def _parse(file: SourceFile, text: str, macros: Mapping[str, Macro]) -> ParsedText:
    attributes = {n for n, m in macros.items() if m.params is None and m.body and set(m.body.split()) <= _ATTRIBUTES}
    strings = {n for n, m in macros.items() if m.params is None and m.body.startswith('"') and len(n) > 1}
    kernels = {n for n, m in macros.items() if m.params is not None and "__global__" in m.body.split()}
    heads: list[KernelHead] = []
    if attributes:
        text = re.sub(rf"\b(?:{'|'.join(sorted(attributes))})\b", lambda m: blank(m[0]), text)
    if strings:  # the tree wants strings beside strings; `Reader.string` puts the macro's own in
        text = re.sub(rf"\b(?:{'|'.join(sorted(strings))})\b", lambda m: f'"{m[0][1:-1]}"', text)
    for name in sorted(kernels):
        for match in re.finditer(rf"\b{name}[ \t]*\(([^()]*)\)", text):
            bounds = _launch_bounds(macros[name], [a.strip() for a in match[1].split(",")])
            heads.append(KernelHead(match.start(), bounds))
            text = text[: match.start()] + "void".ljust(len(match[0])) + text[match.end() :]
    masked = text.encode("latin-1")
    tree = _tree(masked)
    check_depth(file, tree)
    return ParsedText(file, masked, tree, tuple(heads))


def _launch_bounds(macro: Macro, arguments: list[str]) -> tuple[str, ...]:
    """What the macro's `__launch_bounds__` says, with its arguments put in."""
    match = re.search(r"__launch_bounds__[ \t]*\(([^()]*)\)", macro.body)
    if match is None or macro.params is None:
        return ()
    values = dict(zip(macro.params, arguments, strict=False))
    bounds = (b.strip() for b in match[1].split(","))
    return tuple(_WORD.sub(lambda m: values.get(m[0], m[0]), b) for b in bounds)


def _syntax_faults(text: ParsedText) -> Iterator[Diagnostic]:
    """The places where the tree has an error, outermost and first line only."""
    stack = [text.tree.root_node]
    while stack:
        node = stack.pop()
        if node.is_missing:
            yield Diagnostic("CU420", f"`{node.type}` is missing here", text.span(node))
        elif node.is_error:
            yield Diagnostic("CU420", "this does not read as CUDA C++", first_line(text.span(node)))
        elif node.has_error:
            stack += reversed(node.children)


def first_line(span: Span) -> Span:
    """The part of a span up to its first line end."""
    length = len(span.file.data[span.start : span.end].split(b"\n", 1)[0].rstrip())
    return Span(span.file, span.start, span.start + max(1, length))
