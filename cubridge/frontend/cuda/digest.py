"""Digests of helper bodies: what a helper is, up to layout, comments, its own name and the names of its locals.

The digest of a helper covers everything it uses: names of functions, types, constants and macros of the text stand for their own
digests. Macros of the instantiation stay names, so that one digest holds for every tile shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from tree_sitter import Node

from cubridge.frontend.cuda.structure import ConstantText, FunctionText, Program, StructText
from cubridge.frontend.cuda.text import Macro, ParsedText

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
        node = _with_template(entity.node)
        text = entity.reader.text
        own = {entity.name, *_declared_names(node, text)}
        yield from self._normalised(self._tokens(node, text), own, entity.name)
        if isinstance(entity, FunctionText):
            yield from self._assertions(text)

    def _assertions(self, text: ParsedText) -> Iterator[str]:
        """What the file of a helper asserts of the instantiation: a helper is proved under it."""
        for owner, node, _ in self.program.assertions:
            condition = node.child_by_field_name("condition")
            if owner is text and condition is not None:
                yield from self._normalised(self._tokens(condition, text), set(), "")

    def _tokens(self, node: Node, text: ParsedText) -> list[str]:
        """Tokens of a node, with string macros in place of what masks them."""
        masked = text.masked[node.start_byte : node.end_byte].decode("latin-1")
        tokens: list[str] = []
        for match in _TOKEN.finditer(masked):
            at = node.start_byte + match.start()
            written = text.file.data[at : node.start_byte + match.end()].decode("latin-1")
            tokens.append(written if match[0].startswith('"') else match[0])
        return tokens

    def _normalised(self, tokens: list[str], own: set[str], name: str) -> Iterator[str]:
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


def _declared_names(node: Node, text: ParsedText) -> Iterator[str]:
    """Parameters, template parameters and locals declared inside a node; members of structs keep their names."""
    stack = [node]
    while stack:
        at = stack.pop()
        if at.type == "gnu_asm_expression":
            continue
        if at.type in ("declaration", "init_declarator", "parameter_declaration", "optional_parameter_declaration"):
            yield from (
                text.text(d) for d in map(_identifier, at.children_by_field_name("declarator")) if d is not None
            )
        if at.type == "type_parameter_declaration":
            yield from (text.text(c) for c in at.named_children)
        stack += at.named_children


def _identifier(node: Node | None) -> Node | None:
    while node is not None and node.type != "identifier":
        inner = node.child_by_field_name("declarator")
        node = inner or next((c for c in node.named_children if "declarator" in c.type or c.type == "identifier"), None)
    return node
