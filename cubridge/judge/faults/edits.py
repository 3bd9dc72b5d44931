"""A fault of CuIR as byte edits of the CUDA text that the CuIR was lifted from. Whether the edited text says the fault is for its
reader to find out; what has no C++ statement or no words of its own is not edited."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from cubridge.backend.text.patch import TextEdit
from cubridge.ir.nodes import Attr, Binary, Expr, Index, IntLit, Kernel, Name, Node, Stmt
from cubridge.ir.paths import Path, get
from cubridge.ir.printer import print_expr
from cubridge.ir.source import Span
from cubridge.ir.walk import field_names, walk
from cubridge.judge.faults.catalog import Fault

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

    from cubridge.frontend.cuda.text import ParsedText

_C_OPERATORS: Final = {"//": "/"}
"""Where C++ spells an operator of CuIR otherwise."""
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_PLAIN: Final = re.compile(r"[\w.]+(?:\[[\w.]+\])*")
"""Words that need no parentheses wherever they stand."""


class Unsayable(Exception):
    """The text cannot say a fault; the message is the reason."""


def fault_edits(text: ParsedText, source: Kernel, fault: Fault) -> tuple[TextEdit, ...]:
    """The edits of `text`, whose CuIR is `source`, that say `fault`. Raises Unsayable."""
    statement = _statement(source, fault.path)
    match fault.operator:
        case "delete":
            return (TextEdit(_extent(text, statement), b"{}"),)
        case "duplicate":
            place = _extent(text, statement)
            return (TextEdit(place, b"{ %b %b }" % (_bytes(place), _bytes(place))),)
        case "swap with next":
            index = int(fault.path.steps[-1])
            places = [_extent(text, s) for s in (statement, _statement(source, fault.path.parent / (index + 1)))]
            return TextEdit(places[0], _bytes(places[1])), TextEdit(places[1], _bytes(places[0]))
        case _:
            words = _Words(text, statement)
            changed = _statement(fault.kernel, fault.path)
            return tuple(TextEdit(words.place(a), words.say(b, a).encode()) for a, b in _changes(statement, changed))


def _statement(kernel: Kernel, path: Path) -> Stmt:
    node = get(kernel, path)
    assert isinstance(node, Stmt)
    return node


def _bytes(span: Span) -> bytes:
    return span.file.data[span.start : span.end]


# ---- statements ------------------------------------------------------------------------------------------------------


def _extent(text: ParsedText, statement: Stmt) -> Span:
    """The C++ statement that says `statement` and nothing else, up to its semicolon."""
    span = statement.span
    if span.file != text.file:
        raise Unsayable("the statement stands outside the kernel text")
    node: SyntaxNode | None = text.tree.root_node.descendant_for_byte_range(span.start, span.end)
    while node is not None and node.start_byte == span.start:
        rest = text.masked[span.end : node.end_byte]
        if node.type.endswith(("statement", "declaration")) and rest.strip() in (b"", b";"):
            return text.span(node)
        node = node.parent
    raise Unsayable("it is no C++ statement of its own")


# ---- expressions -----------------------------------------------------------------------------------------------------


def _changes(old: Node, new: Node) -> Iterator[tuple[Expr, Expr]]:
    """The innermost expressions in which two trees differ; an expression of which several parts differ is one of them."""
    inner = list(_different_parts(old, new))
    if None not in inner and (len(inner) == 1 or isinstance(old, Stmt)):
        for pair in inner:
            if pair is not None:
                yield from _changes(*pair)
    elif isinstance(old, Expr) and isinstance(new, Expr):
        yield old, new
    else:
        raise Unsayable("no expression of the text says it")


def _different_parts(old: Node, new: Node) -> Iterator[tuple[Node, Node] | None]:
    """Parts that differ; None for one that is no node, or that only one of the two has."""
    if type(old) is not type(new):
        yield None
        return
    for name in field_names(type(old)):
        mine, other = getattr(old, name), getattr(new, name)
        if mine == other:
            continue
        pairs = [(mine, other)]
        if isinstance(mine, tuple) and isinstance(other, tuple):
            mine, other = cast(tuple[object, ...], mine), cast(tuple[object, ...], other)
            pairs = [(a, b) for a, b in zip(mine, other, strict=True) if a != b] if len(mine) == len(other) else [()]
        for pair in pairs:
            match pair:
                case (Node() as a, Node() as b):
                    yield a, b
                case _:
                    yield None


@dataclass(frozen=True, slots=True)
class _Words:
    """What the C++ text of one statement calls its expressions."""

    text: ParsedText
    statement: Stmt

    def place(self, expr: Expr) -> Span:
        """Where the text says `expr`: its own span, or else the one place in the statement that reads like it."""
        whole, own = self.statement.span, expr.span
        if own.file == whole.file and whole.start <= own.start and own.end <= whole.end and own != whole:
            return own
        if whole.file == self.text.file:
            found = list(_reading_like(print_expr(expr)).finditer(self.text.masked[whole.start : whole.end]))
            if len(found) == 1:
                return Span(whole.file, whole.start + found[0].start(), whole.start + found[0].end())
        raise Unsayable(f"`{print_expr(expr)}` has no words of its own in the text")

    def say(self, expr: Expr, instead_of: Expr) -> str:
        """C++ for `expr` where `instead_of` stands, in the words that the statement has for its parts."""
        if any(expr == node for node in walk(self.statement)):
            return self._quoted(expr)
        match expr, instead_of:
            case IntLit(value), _:
                return str(value) if value >= 0 else f"({value})"
            case Name(name), _:
                return name
            case Binary(op, left, right), _:
                return f"({self.say(left, left)} {_C_OPERATORS.get(op, op)} {self.say(right, right)})"
            case Attr(base, name), Attr(old_base, old) if base == old_base:
                return self.place(instead_of).text.removesuffix(old) + name
            case Index(base, indices), _:
                return self.say(base, base) + "".join(f"[{self.say(i, i)}]" for i in indices)
            case _:
                raise Unsayable(f"the statement has no words for `{print_expr(expr)}`")

    def _quoted(self, expr: Expr) -> str:
        node = next(n for n in walk(self.statement) if n == expr)
        assert isinstance(node, Expr)
        text = self.place(node).text
        return text if _PLAIN.fullmatch(text) else f"({text})"


def _reading_like(printed: str) -> re.Pattern[bytes]:
    tokens = r"\s*".join(re.escape(t) for t in _TOKEN.findall(printed))
    return re.compile(rf"(?<![\w.])(?:{tokens})(?![\w.])".encode())
