"""Syntax trees of CuIR text to expressions, and the arguments of calls. Used by `build.py`."""

from __future__ import annotations

import difflib
import keyword
import math
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, replace
from typing import Final, NoReturn

from lark import Token, Tree

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import (
    Argument,
    Attr,
    Binary,
    BoolLit,
    Call,
    Expr,
    FieldType,
    FloatLit,
    Index,
    IntLit,
    Name,
    Op,
    Record,
    Unary,
)
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.types import DType
from cubridge.ir.vocabulary import (
    COMPARISON,
    ORCHESTRATION_CALLS,
    POWER,
    PRECEDENCE,
    QUERY_REGIONS,
    SCHEDULE,
    UNARY,
    VALUE_REGIONS,
    Form,
)

MAX_DEPTH: Final = 100
"""Bound on nesting plus the lengths of the operator chains on the way down, so that walks may recurse."""

MAX_INT: Final = 2**63 - 1
_CALLS: Final = frozenset({*FUNCTIONS, *ORCHESTRATION_CALLS, *VALUE_REGIONS, *QUERY_REGIONS, SCHEDULE})
_WORD_HELP: Final = {
    "None": "CuIR has no None; `present(..)` tests an optional parameter",
    "and": "write `&`", "or": "write `|`", "not": "write `~`", "if": "write `where(condition, a, b)`",
}  # fmt: skip

Item = Tree[Token] | Token


def fail(message: str, span: Span, code: str = "CU101", help: str | None = None) -> NoReturn:
    raise CuError(Diagnostic(code, message, span, help=help))


def unknown(kind: str, word: str, known: Iterable[str], span: Span) -> NoReturn:
    """CU103 with the nearest known word."""
    near = difflib.get_close_matches(word, list(known), n=1)
    fail(f"CuIR has no {kind} `{word}`", span, "CU103", f"did you mean `{near[0]}`?" if near else None)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call, not built yet."""

    callee: str
    span: Span
    positional: tuple[Tree[Token], ...]
    keywords: dict[str, Tree[Token]]
    places: dict[str, Span]


class ExprBuilder:
    """Builds expressions of one text. `depth` bounds recursion, whatever the text."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file

    def expression(self, tree: Tree[Token]) -> Expr:
        return self.expr(_tree(tree.children[0]), 0)

    def span(self, item: Item) -> Span:
        place = item if isinstance(item, Token) else item.meta
        return Span(self.file, getattr(place, "start_pos", 0) or 0, getattr(place, "end_pos", 0) or 0)

    def check_depth(self, depth: int, item: Item) -> None:
        if depth > MAX_DEPTH:
            fail(f"nested deeper than {MAX_DEPTH} levels", self.span(item), help="name a part of it")

    def word(self, token: Item | None) -> str:
        """A name, which Python must take as one too."""
        assert isinstance(token, Token)
        if keyword.iskeyword(token):
            fail(f"`{token}` is no name", self.span(token), help=_WORD_HELP.get(str(token)))
        return str(token)

    # ---- operators ---------------------------------------------------------------------------------------------------

    def expr(self, flat: Tree[Token], depth: int) -> Expr:
        """The expression of a flat list of operands and operators."""
        self.check_depth(depth, flat)
        items = flat.children
        if len(items) == 1:
            return self._operand(_tree(items[0]), depth)
        depth += len(items) // 2
        self.check_depth(depth, flat)
        return _Climber(self, items, depth).binary(0)

    def _operand(self, tree: Tree[Token], depth: int) -> Expr:
        self.check_depth(depth, tree)
        first = tree.children[0]
        match str(tree.data):
            case "name":
                return self._name(first, self.span(tree))
            case "number":
                return self._number(str(first), self.span(tree))
            case "parenthesis":
                return replace(self.expr(_tree(first), depth + 1), span=self.span(tree))
            case "attribute":
                return Attr(
                    self._operand(_tree(first), depth + 1), self.word(_token(tree.children[1])), span=self.span(tree)
                )
            case "subscript":
                base, *indices = (_tree(c) for c in tree.children)
                parts = tuple(self.expr(x, depth + 1) for x in indices)
                return Index(self._operand(base, depth + 1), parts, span=self.span(tree))
            case "call":
                return self._call(self.arguments(_tree(tree.children[1]), self.word(_token(first)), tree), depth + 1)
            case _:
                fail("a string has no place here", self.span(tree))

    def _name(self, item: Item | None, span: Span) -> Expr:
        if item in ("True", "False"):
            return BoolLit(item == "True", span=span)
        return Name(self.word(item), span=span)

    def _number(self, text: str, span: Span) -> Expr:
        if not text.isdigit():
            value = float(text)
            if math.isinf(value):
                fail("this number is too large", span, help="infinity is written `inf`")
            return FloatLit(value, span=span)
        if text.startswith("0") and text.strip("0"):
            fail("an integer does not start with 0", span)
        if len(text) > 19 or int(text) > MAX_INT:
            fail("an integer must fit into 64 bits", span)
        return IntLit(int(text), span=span)

    def _call(self, call: Arguments, depth: int) -> Expr:
        if call.callee in _CALLS:
            if call.keywords:
                fail(f"`{call.callee}` takes no keywords", call.span)
            return Call(call.callee, tuple(self.expr(a, depth) for a in call.positional), span=call.span)
        if call.positional or not call.keywords:
            unknown("function", call.callee, _CALLS, call.span)
        parts = (Argument(n, self.expr(v, depth), span=call.places[n]) for n, v in call.keywords.items())
        return Record(call.callee, tuple(parts), span=call.span)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def arguments(self, tree: Tree[Token], callee: str, whole: Tree[Token]) -> Arguments:
        """Splits an `arguments` tree, as Python does."""
        positional: list[Tree[Token]] = []
        keywords: dict[str, Tree[Token]] = {}
        places: dict[str, Span] = {}
        for argument in (c for c in tree.children if isinstance(c, Tree)):
            if argument.data == "positional":
                if keywords:
                    fail("a positional argument follows a keyword", self.span(argument))
                positional.append(_tree(argument.children[0]))
                continue
            name = self.word(_token(argument.children[0]))
            if name in keywords:
                fail(f"`{name}` is given twice", self.span(argument))
            keywords[name] = _tree(argument.children[1])
            places[name] = self.span(argument)
        return Arguments(callee, self.span(whole), tuple(positional), keywords, places)

    def form(self, form: Form, call: Arguments, depth: int) -> FieldType | Op:
        """The node of a call that is laid out as `form` says."""
        given = self.bind(call, form.positional, form.keywords, form.rest)
        values: dict[str, object] = {name: self._value(name, tree, depth) for name, tree in given.items()}
        if form.rest is not None:
            rest = call.positional[len(form.positional) :]
            values[form.rest] = tuple(self.expr(x, depth) for x in rest)
        missing = [f.name for f in fields(form.cls) if f.name not in values and f.default is MISSING]
        missing = [name for name in missing if name != "span"]
        if missing:
            fail(f"`{call.callee}` needs `{missing[0]}`", call.span)
        return form.cls(**values, span=call.span)  # pyright: ignore[reportArgumentType]

    def bind(
        self, call: Arguments, names: tuple[str, ...], keywords: tuple[str, ...] = (), rest: str | None = None
    ) -> dict[str, Tree[Token]]:
        """Arguments by name. `names` may be given by position or keyword, and the extra ones if `rest` takes them."""
        every = names + (() if rest else keywords)
        if len(call.positional) > len(every) and rest is None:
            fail(f"`{call.callee}` takes at most {len(every)} arguments", call.span)
        given = dict(zip(every, call.positional, strict=False))
        for name, tree in call.keywords.items():
            if name not in names and name not in keywords:
                unknown(f"argument of `{call.callee}` named", name, names + keywords, call.places[name])
            if name in given:
                fail(f"`{name}` is given twice", call.places[name])
            given[name] = tree
        return given

    def _value(self, field: str, tree: Tree[Token], depth: int) -> object:
        match field:
            case "dtype":
                return self.dtype(tree)
            case "optional" | "swizzle" | "pad":
                return self._literal(tree, BoolLit if field == "optional" else IntLit)
            case "of":
                return self._identifier(tree)
            case _:
                return self.expr(tree, depth)

    def dtype(self, tree: Tree[Token]) -> DType:
        node = self.expr(tree, 0)
        name = node.id if isinstance(node, Name) else node.span.text
        if name not in DType.__members__.values():
            unknown("element type", name, [d.value for d in DType], node.span)
        return DType(name)

    def _identifier(self, tree: Tree[Token]) -> str:
        node = self.expr(tree, 0)
        if not isinstance(node, Name):
            fail("this must be a name", node.span)
        return node.id

    def _literal(self, tree: Tree[Token], kind: type[BoolLit] | type[IntLit]) -> bool | int:
        node = self.expr(tree, 0)
        if not isinstance(node, kind):
            fail("this must be True or False" if kind is BoolLit else "this must be a number", node.span)
        return node.value


class _Climber:
    """Precedence climbing over the items of one flat list."""

    def __init__(self, builder: ExprBuilder, items: list[Item], depth: int) -> None:
        self.builder = builder
        self.items = items
        self.depth = depth
        self.at = 0

    def binary(self, lowest: int) -> Expr:
        """The longest expression from here whose operators bind at least as tight as `lowest`."""
        left = self._unary()
        while self.at < len(self.items):
            operator = _token(self.items[self.at])
            level = PRECEDENCE[operator]
            if level < lowest:
                break
            self.at += 1
            right = self.binary(UNARY if level == POWER else level + 1)
            left = Binary(str(operator), left, right, span=left.span.to(right.span))
            if level == COMPARISON:
                self._forbid_chain()
        return left

    def _unary(self) -> Expr:
        item = self.items[self.at]
        self.at += 1
        if isinstance(item, Tree):
            return self.builder._operand(item, self.depth)  # pyright: ignore[reportPrivateUsage]
        start = self.builder.span(item)
        operand = self.binary(UNARY)
        span = start.to(operand.span)
        if item == "-" and isinstance(operand, IntLit | FloatLit) and operand.span.text[0].isdigit():
            return replace(operand, value=-operand.value, span=span)
        return Unary(str(item), operand, span=span)

    def _forbid_chain(self) -> None:
        if self.at < len(self.items) and PRECEDENCE[_token(self.items[self.at])] == COMPARISON:
            token = self.items[self.at]
            help = "`&` and `|` bind tighter than comparisons: put each comparison into parentheses"
            fail("comparisons do not chain", self.builder.span(token), help=help)


def _tree(item: Item | None) -> Tree[Token]:
    assert isinstance(item, Tree)
    return item


def _token(item: Item | None) -> Token:
    assert isinstance(item, Token)
    return item
