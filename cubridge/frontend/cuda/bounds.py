"""How large and how deep a text may be: what keeps reading and compiling it short."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from tree_sitter import Tree

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

MAX_BYTES: Final = 1 << 18
MAX_BRACKETS: Final = 64
MAX_CONDITIONS: Final = 32
MAX_DIRECTIVES: Final = 2000
MAX_MACROS: Final = 500
MAX_DEPTH: Final = 120
"""Of a syntax tree; those of the packaged texts have 23 levels."""
MAX_CALLS: Final = 1000
"""Of functions of the text, once all are put in place of their calls."""
MAX_CHAIN: Final = 60

_BRACKET: Final = re.compile(r"[(){}\[\]]")


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


def check_calls(functions: Mapping[str, Sequence[tuple[Span, Sequence[str]]]]) -> None:
    """Errors: CU423 for a function that makes more than MAX_CALLS calls once those of `functions`, by name with the names that each
    calls, are put in place of their calls."""
    known: dict[str, int] = {}

    def count(name: str, depth: int) -> int:
        if name not in known:
            known[name] = 1  # what calls itself is refused where it is called
            for span, called in functions[name]:
                total = 1 + sum(count(c, depth + 1) for c in called if c in functions)
                if total > MAX_CALLS or depth > MAX_CHAIN:
                    raise too_large(
                        "CU423", f"`{name}` is more than {MAX_CALLS} calls of functions in each other", span
                    )
                known[name] = max(known[name], total)
        return known[name]

    for name in functions:
        count(name, 0)
