"""Macros, and how many words they become: counted without expanding them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cubridge.frontend.cuda.bounds import MAX_CHAIN, too_large
from cubridge.ir.source import NOWHERE, SourceFile, Span

MAX_EXPANSION: Final = 2000
"""Words that one use of a macro becomes."""
MAX_EXPANSIONS: Final = 100_000
"""Words that all uses in one text become."""

_WORD: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*|\.?\d[\w.]*|\S')


@dataclass(frozen=True, slots=True)
class Macro:
    """`#define name(params) body`; params is None for an object-like macro. `given`: by the instantiation, not the text."""

    name: str
    body: str
    params: tuple[str, ...] | None = None
    given: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(slots=True)
class Expansion:
    """How many words the macros of a text become."""

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
            if depth > MAX_CHAIN:
                raise too_large("CU421", f"macros stand for each other more than {MAX_CHAIN} times", place)
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
