"""Digests of helper bodies: what a helper is, up to layout, comments, its own name and the names of its locals.

The digest of a helper covers everything it uses: names of functions, types, constants and macros of the text stand for their own
digests. Macros of the instantiation stay names, so that one digest holds for every tile shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Final

from tree_sitter import Node

from cubridge.frontend.cuda.macros import Macro
from cubridge.frontend.cuda.structure import ConstantText, FunctionText, Program, StructText
from cubridge.frontend.cuda.text import ParsedText

_TOKEN: Final = re.compile(
    r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\.?\d(?:[\w.]|[eE][+-])*|<<|>>|[-+&|=!<>*/%^]=|&&|\|\||::|\+\+|--|\S'
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_NUMBER: Final = re.compile(r"\(?-?[\d.][\w.]*\)?")
_LENGTH: Final = 16

Entity = FunctionText | StructText | ConstantText | Macro


class Digests:
    """Digests of the declarations of one program, each computed once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[str, str] = {}
        self._open: set[str] = set()

    def function(self, function: FunctionText) -> str:
        return self._cached(f"{function.file.name}:{function.node.start_byte}", function)

    def struct(self, struct: StructText) -> str:
        return self._cached(f"struct {struct.name}", struct)

    def macro(self, macro: Macro) -> str:
        return self._cached(f"macro {macro.name}", macro)

    def _cached(self, key: str, entity: Entity) -> str:
        if key in self._open:
            return "recursion"
        if key not in self._known:
            self._open.add(key)
            words = " ".join(self._words(entity))
            self._open.discard(key)
            self._known[key] = sha256(words.encode()).hexdigest()[:_LENGTH]
        return self._known[key]

    def _words(self, entity: Entity) -> Iterator[str]:
        if isinstance(entity, Macro):
            own = {entity.name, *(entity.params or ())}
            yield from self._normalised(_TOKEN.findall(entity.body), own, entity.name)
            return
        text = entity.reader.text
        piece = _Piece.of(_with_template(entity.node), text)
        yield from self._normalised(_tokens(piece), {entity.name, *_declared_names(piece)}, entity.name)
        if isinstance(entity, FunctionText):
            yield from self._assertions(text)

    def _assertions(self, text: ParsedText) -> Iterator[str]:
        """What the file of a helper asserts of the instantiation: a helper was tested under it."""
        for owner, node, _ in self.program.assertions:
            condition = node.child_by_field_name("condition")
            if owner is text and condition is not None:
                yield from self._normalised(_tokens(_Piece.of(condition, text)), set(), "")

    def _normalised(self, tokens: Iterable[str], own: set[str], name: str) -> Iterator[str]:
        numbers: dict[str, str] = {name: "$self"}
        before = ""
        for token in tokens:
            if before in (".", "::") or not _NAME.fullmatch(token):
                yield token
            elif token in own:
                yield numbers.setdefault(token, f"${len(numbers)}")
            else:
                yield from self._global(token)
            before = token

    def _global(self, name: str) -> Iterator[str]:
        program = self.program
        macro = program.macro(name)
        if macro is not None:
            yield name if macro.given or _NUMBER.fullmatch(macro.body) else f"#{self.macro(macro)}"
        elif name in program.functions:
            yield from sorted(f"#{self.function(f)}" for f in program.functions[name])
        elif name in program.structs:
            yield f"#{self.struct(program.structs[name])}"
        elif name in program.constants:
            yield f"#{self._cached(f'constant {name}', program.constants[name])}"
        elif name in program.aliases:
            yield str(program.aliases[name][0])
        else:
            yield name


def _with_template(node: Node) -> Node:
    parent = node.parent
    return parent if parent is not None and parent.type == "template_declaration" else node


@dataclass(frozen=True, slots=True)
class _Piece:
    """What a node says, as it stands and masked; helpers of headers are the same in every program."""

    written: bytes
    masked: bytes
    node: Node = field(compare=False)
    text: ParsedText = field(compare=False)

    @staticmethod
    def of(node: Node, text: ParsedText) -> _Piece:
        place = slice(node.start_byte, node.end_byte)
        return _Piece(text.file.data[place], text.masked[place], node, text)


@lru_cache(maxsize=1024)
def _tokens(piece: _Piece) -> tuple[str, ...]:
    """Tokens, with string macros in place of what masks them."""
    tokens: list[str] = []
    for match in _TOKEN.finditer(piece.masked.decode("latin-1")):
        written = piece.written[match.start() : match.end()].decode("latin-1")
        tokens.append(written if match[0].startswith('"') else match[0])
    return tuple(tokens)


@lru_cache(maxsize=1024)
def _declared_names(piece: _Piece) -> frozenset[str]:
    """Parameters, template parameters and locals declared inside; members of structs keep their names."""
    names: list[str] = []
    stack = [piece.node]
    while stack:
        at = stack.pop()
        if at.type == "gnu_asm_expression":
            continue
        if at.type in ("declaration", "init_declarator", "parameter_declaration", "optional_parameter_declaration"):
            declared = map(_identifier, at.children_by_field_name("declarator"))
            names += (piece.text.text(d) for d in declared if d is not None)
        if at.type == "type_parameter_declaration":
            names += (piece.text.text(c) for c in at.named_children)
        stack += at.named_children
    return frozenset(names)


def _identifier(node: Node | None) -> Node | None:
    while node is not None and node.type != "identifier":
        inner = node.child_by_field_name("declarator")
        node = inner or next((c for c in node.named_children if "declarator" in c.type or c.type == "identifier"), None)
    return node
