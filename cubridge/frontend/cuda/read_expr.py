"""Expressions and types of syntax trees to typed syntax (`syntax.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tree_sitter import Node

from cubridge.frontend.cuda.macros import Macro
from cubridge.frontend.cuda.syntax import (
    Assignment,
    Braces,
    CallOf,
    Cast,
    CExpr,
    CType,
    Ident,
    Infix,
    Member,
    Null,
    Number,
    OfType,
    Prefix,
    SizeOf,
    Subscript,
    Ternary,
    Truth,
    Unknown,
)
from cubridge.frontend.cuda.text import ParsedText
from cubridge.ir.source import Span

_STEPS: Final = {"++": "+=", "--": "-="}
_CASTS: Final = ("static_cast", "reinterpret_cast", "const_cast")


class MissingPart(Exception):
    """A node lacks a part that its syntax class needs, as in `a ?: b`."""


@dataclass(frozen=True, slots=True)
class ExprReader:
    """Reads nodes of one text. `place`: the span of everything read, for text that stands elsewhere (a macro's)."""

    text: ParsedText
    macros: Mapping[str, Macro]
    place: Span | None = None

    def span(self, node: Node) -> Span:
        return self.place or self.text.span(node)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def expr(self, node: Node) -> CExpr:
        try:
            return self._expr(node)
        except MissingPart:
            return Unknown(node.type, span=self.span(node))

    def _expr(self, node: Node) -> CExpr:
        span = self.span(node)
        match node.type:
            case "parenthesized_expression" | "condition_clause" | "subscript_argument_list" | "initializer_pair":
                return self._inner(node)
            case "identifier" | "type_identifier" | "field_identifier":
                return Ident(self.text.text(node), span=span)
            case "number_literal":
                return _number(self.text.text(node), span)
            case "true" | "false":
                return Truth(node.type == "true", span=span)
            case "null":
                return Null(span=span)
            case "field_expression":
                return self._member(node)
            case "subscript_expression":
                index = self.expr(child(node, "indices"))
                return Subscript(self.expr(child(node, "argument")), index, span=span)
            case "call_expression":
                return self._call(node)
            case "unary_expression" | "pointer_expression":
                operand = self.expr(child(node, "argument"))
                return Prefix(self._operator(node), operand, span=span)
            case "update_expression":
                op = _STEPS[self._operator(node)]
                return Assignment(self.expr(child(node, "argument")), op, Number("1", span=span), span=span)
            case "binary_expression":
                left, right = self.expr(child(node, "left")), self.expr(child(node, "right"))
                return Infix(self._operator(node), left, right, span=span)
            case "assignment_expression":
                target, value = self.expr(child(node, "left")), self.expr(child(node, "right"))
                return Assignment(target, self._operator(node), value, span=span)
            case "conditional_expression":
                parts = [self.expr(child(node, f)) for f in ("condition", "consequence", "alternative")]
                return Ternary(*parts, span=span)
            case "cast_expression":
                type_node = child(node, "type")
                return Cast(self.type(type_node), self.expr(child(node, "value")), span=span)
            case "compound_literal_expression":
                braces = self._braces(child(node, "value"))
                return replace(braces, type=self.type(child(node, "type")), span=span)
            case "initializer_list":
                return self._braces(node)
            case "qualified_identifier":
                return self._qualified(node)
            case "sizeof_expression":
                return self._size_of(node)
            case "type_descriptor":
                return self._type_as_expr(node)
            case _:
                return Unknown(node.type, span=span)

    def _inner(self, node: Node) -> CExpr:
        """What stands alone between brackets."""
        inner = named(node)
        return self.expr(inner[0]) if len(inner) == 1 else Unknown(node.type, span=self.span(node))

    def _operator(self, node: Node) -> str:
        return self.text.text(child(node, "operator"))

    def _member(self, node: Node) -> CExpr:
        operator = node.child_by_field_name("operator")
        if operator is not None and operator.type != ".":
            return Unknown("member of a pointer", span=self.span(node))
        name = self.text.text(child(node, "field"))
        return Member(self.expr(child(node, "argument")), name, span=self.span(node))

    def _braces(self, node: Node) -> Braces:
        return Braces(None, tuple(self.expr(c) for c in named(node)), span=self.span(node))

    def _qualified(self, node: Node) -> CExpr:
        scope = node.child_by_field_name("scope")
        name = child(node, "name")
        if scope is None or name.type != "identifier":
            return Unknown(node.type, span=self.span(node))
        return OfType(self.base_type(scope), self.text.text(name), span=self.span(node))

    def _size_of(self, node: Node) -> CExpr:
        type_node = node.child_by_field_name("type")
        span = self.span(node)
        return Unknown("sizeof of a value", span=span) if type_node is None else SizeOf(self.type(type_node), span=span)

    def _type_as_expr(self, node: Node) -> CExpr:
        """A template argument that the tree takes for a type: a constant's name or a product of some."""
        kind = child(node, "type")
        return self.expr(kind) if kind.type == "type_identifier" else Unknown(node.type, span=self.span(node))

    def _call(self, node: Node) -> CExpr:
        span = self.span(node)
        fn = child(node, "function")
        args = tuple(self.expr(a) for a in named(child(node, "arguments")))
        match fn.type:
            case "identifier":
                return CallOf(self.text.text(fn), args, span=span)
            case "primitive_type" | "sized_type_specifier":
                return self._cast_call(fn, args, span)
            case "parenthesized_expression" if self._names_type(fn):  # a cast, where the operand has parentheses too
                return self._cast_call(named(fn)[0], args, span)
            case "template_function":
                return self._template_call(fn, args, span)
            case "field_expression":
                member = self.expr(fn)
                if isinstance(member, Member):
                    return CallOf(member.name, args, receiver=member.base, span=span)
            case _:
                pass
        return Unknown(f"call of a {fn.type}", span=span)

    def _names_type(self, node: Node) -> bool:
        inner = named(node)
        return len(inner) == 1 and self.text.text(inner[0]) in _TYPE_NAMES

    def _cast_call(self, fn: Node, args: tuple[CExpr, ...], span: Span) -> CExpr:
        return Cast(self.base_type(fn), args[0], span=span) if len(args) == 1 else Unknown("cast", span=span)

    def _template_call(self, fn: Node, args: tuple[CExpr, ...], span: Span) -> CExpr:
        name = self.text.text(child(fn, "name"))
        arguments = named(child(fn, "arguments"))
        if name in _CASTS:
            known = name == "static_cast" and len(args) == 1 and len(arguments) == 1
            return Cast(self.type(arguments[0]), args[0], span=span) if known else Unknown(name, span=span)
        return CallOf(name, args, tuple(self.expr(a) for a in arguments), span=span)

    # ---- types -------------------------------------------------------------------------------------------------------

    def type(self, node: Node) -> CType:
        """The type of a `type_descriptor` or of a type's name."""
        if node.type != "type_descriptor":
            return self.base_type(node)
        base = self.base_type(child(node, "type"), self.text.is_const(node))
        declarator = node.child_by_field_name("declarator")
        return base if declarator is None else self.declared(base, declarator)[0]

    def base_type(self, node: Node, const: bool = False) -> CType:
        span = self.span(node)
        if node.type == "template_type":
            args = tuple(self.expr(a) for a in named(child(node, "arguments")))
            return CType(self.text.text(child(node, "name")), args, const, span=span)
        return CType(" ".join(self.text.text(node).split()), (), const, span=span)

    def declared(self, base: CType, node: Node) -> tuple[CType, str]:
        """The full type and the name of a declarator around `base`."""
        match node.type:
            case "identifier" | "field_identifier" | "type_identifier":
                return base, self.text.text(node)
            case "pointer_declarator" | "abstract_pointer_declarator":
                return self._inside(replace(base, pointers=base.pointers + 1), node)
            case "reference_declarator" | "abstract_reference_declarator":
                return self._inside(replace(base, reference=True), node)
            case "array_declarator":
                size = node.child_by_field_name("size")
                dim = Unknown("array without a size", span=self.span(node)) if size is None else self.expr(size)
                return self._inside(replace(base, dims=(dim, *base.dims)), node)
            case "parenthesized_declarator":
                return self._inside(base, node)
            case _:
                return replace(base, name=f"{base.name} {node.type}"), ""

    def _inside(self, base: CType, node: Node) -> tuple[CType, str]:
        inner = node.child_by_field_name("declarator")
        if inner is None:
            inner = next((c for c in named(node) if "declarator" in c.type or c.type.endswith("identifier")), None)
        return (base, "") if inner is None else self.declared(base, inner)


_TYPE_NAMES: Final = frozenset(("i64", "u32", "u64"))
"""Types that every kernel text has under names of their own, which no tree knows."""


def named(node: Node) -> list[Node]:
    return [c for c in node.named_children if c.type != "comment"]


def child(node: Node, field: str) -> Node:
    found = node.child_by_field_name(field)
    if found is None:
        raise MissingPart
    return found


def _number(text: str, span: Span) -> CExpr:
    """The tree has `-1` as one literal in some places."""
    if text[:1] in "-+":
        return Prefix(text[0], Number(text[1:], span=span), span=span)
    return Number(text, span=span)
