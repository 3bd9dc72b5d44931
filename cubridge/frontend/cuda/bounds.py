"""How large and how deep a text may be: what keeps reading and compiling it short."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

if TYPE_CHECKING:
    from tree_sitter import Tree

    from cubridge.frontend.cuda.text import Macro

MAX_BYTES: Final = 1 << 18
MAX_BRACKETS: Final = 64
MAX_CONDITIONS: Final = 32
MAX_DIRECTIVES: Final = 2000
MAX_MACROS: Final = 500
MAX_DEPTH: Final = 120
"""Of a syntax tree; those of the packaged texts have 23 levels."""
MAX_EXPANSION: Final = 2000
"""Words that one use of a macro becomes."""
MAX_EXPANSIONS: Final = 100_000
"""Words that all uses in one text become."""
MAX_CALLS: Final = 1000
"""Of functions of the text, once all are put in place of their calls."""
_MAX_CHAIN: Final = 60

_BRACKET: Final = re.compile(r"[(){}\[\]]")
_WORD: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*|\.?\d[\w.]*|\S')


def too_large(code: str, what: str, span: Span) -> CuError:
    return CuError(Diagnostic(code, what, span, help="no kernel needs this; write it shorter"))


def check_brackets(file: SourceFile, text: str) -> None:
    """Errors: CU420 for brackets in more than MAX_BRACKETS others. `text`: without comments."""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth = depth + 1 if match[0] in "([{" else max(0, depth - 1)
        if depth > MAX_BRACKETS:
            place = Span(file, match.start(), match.end())
            raise too_large("CU420", f"brackets are nested deeper than {MAX_BRACKETS}", place)


def check_depth(file: SourceFile, tree: Tree) -> None:
    """Errors: CU420 for a tree of more than MAX_DEPTH levels."""
    cursor, depth = tree.walk(), 1
    while True:
        if cursor.goto_first_child():
            depth += 1
            if depth > MAX_DEPTH and cursor.node is not None:
                start = cursor.node.start_byte
                message = f"code is nested deeper than {MAX_DEPTH} levels"
                raise too_large("CU420", message, Span(file, start, start + 1))
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


@dataclass(slots=True)
class Expansion:
    """How many words macros become, counted without expanding them."""

    macros: Mapping[str, Macro]
    _known: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict[tuple[str, tuple[int, ...]], int])

    def check_macros(self) -> None:
        """Errors: CU421 for a macro of which one use is too large."""
        for macro in self.macros.values():
            if not macro.given:
                self._macro(macro, tuple(1 for _ in macro.params or ()), macro.span, 0)

    def check_text(self, file: SourceFile, text: str, at: Span | None = None) -> None:
        """Errors: CU421 for uses in a text without directives that are too large, each or all together. `at`: the place of a text
        that is a part of `file`."""
        total = 0
        for match in re.finditer(r"[^;{}]+", text):
            words = _WORD.findall(match[0])
            if any(w in self.macros for w in words):
                place = at or Span(file, match.start() + len(match[0]) - len(match[0].lstrip()), match.end())
                total += self._words(words, {}, place, 0, MAX_EXPANSION + len(words)) - len(words)
            if total > MAX_EXPANSIONS:
                message = f"macros become more than {MAX_EXPANSIONS} words in this text"
                raise too_large("CU421", message, at or Span(file, match.start(), match.end()))

    def _macro(self, macro: Macro, sizes: tuple[int, ...], place: Span, depth: int) -> int:
        """Of a use with arguments of these sizes; each use counts as a word itself."""
        key = (macro.name, sizes)
        if key not in self._known:
            if depth > _MAX_CHAIN:
                raise too_large("CU421", f"macros stand for each other more than {_MAX_CHAIN} times", place)
            self._known[key] = 1  # a macro that uses itself is not expanded
            given = dict(zip(macro.params or (), sizes, strict=False))
            where = macro.span if macro.span.file.data else place
            self._known[key] = 1 + self._words(_WORD.findall(macro.body), given, where, depth + 1, MAX_EXPANSION)
        return self._known[key]

    def _words(self, words: Sequence[str], given: Mapping[str, int], place: Span, depth: int, most: int) -> int:
        total, at = 0, 0
        while at < len(words):
            word = words[at]
            macro = None if word in given else self.macros.get(word)
            at += 1
            if macro is None:
                total += given.get(word, 1)
            elif macro.params is None:
                total += self._macro(macro, (), place, depth)
            elif at < len(words) and words[at] == "(":
                parts, at = _arguments(words, at + 1)
                sizes = tuple(self._words(p, given, place, depth + 1, most) for p in parts)
                total += self._macro(macro, sizes, place, depth)
            if total > most:
                raise too_large("CU421", f"macros become more than {MAX_EXPANSION} words here", place)
        return total


def _arguments(words: Sequence[str], at: int) -> tuple[list[list[str]], int]:
    """The arguments from behind `(`, and where the words go on."""
    parts: list[list[str]] = [[]]
    depth = 1
    while at < len(words):
        word = words[at]
        at += 1
        depth += (word == "(") - (word == ")")
        if depth == 0:
            break
        if word == "," and depth == 1:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts, at


def check_calls(functions: Mapping[str, Sequence[tuple[Span, Sequence[str]]]]) -> None:
    """Errors: CU423 for a function that makes more than MAX_CALLS calls once those of `functions`, by name with the names that each
    calls, are put in place of their calls."""
    known: dict[str, int] = {}

    def count(name: str, depth: int) -> int:
        if name not in known:
            known[name] = 1  # what calls itself is refused where it is called
            for span, called in functions[name]:
                total = 1 + sum(count(c, depth + 1) for c in called if c in functions)
                if total > MAX_CALLS or depth > _MAX_CHAIN:
                    raise too_large(
                        "CU423", f"`{name}` is more than {MAX_CALLS} calls of functions in each other", span
                    )
                known[name] = max(known[name], total)
        return known[name]

    for name in functions:
        count(name, 0)
