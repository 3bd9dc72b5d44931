"""Syntax trees to typed syntax (`syntax.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tree_sitter import Node

from cubridge.frontend.cuda.syntax import (
    Asm,
    Assignment,
    Block,
    Braces,
    BreakLoop,
    CallOf,
    Cast,
    CExpr,
    ContinueLoop,
    CStmt,
    CType,
    Declare,
    Evaluate,
    FieldOf,
    ForLoop,
    Ident,
    IfElse,
    Infix,
    Member,
    Null,
    Number,
    OfType,
    Operand,
    Parameter,
    Prefix,
    Return,
    SizeOf,
    Subscript,
    Ternary,
    Truth,
    Unknown,
    UnknownStmt,
    WhileLoop,
)  # fmt: skip
from cubridge.frontend.cuda.text import Macro, ParsedText, parse_snippet
from cubridge.ir.source import Span

_STEPS: Final = {"++": "+=", "--": "-="}
_CASTS: Final = ("static_cast", "reinterpret_cast", "const_cast")


class MissingPart(Exception):
    """A node lacks a part that its syntax class needs, as in `a ?: b`."""


@dataclass(frozen=True, slots=True)
class Reader:
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
                inner = _named(node)
                return self.expr(inner[-1]) if len(inner) == 1 else Unknown(node.type, span=span)
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
                index = self.expr(_child(node, "indices"))
                return Subscript(self.expr(_child(node, "argument")), index, span=span)
            case "call_expression":
                return self._call(node)
            case "unary_expression" | "pointer_expression":
                operand = self.expr(_child(node, "argument"))
                return Prefix(self._operator(node), operand, span=span)
            case "update_expression":
                op = _STEPS[self._operator(node)]
                return Assignment(self.expr(_child(node, "argument")), op, Number("1", span=span), span=span)
            case "binary_expression":
                left, right = self.expr(_child(node, "left")), self.expr(_child(node, "right"))
                return Infix(self._operator(node), left, right, span=span)
            case "assignment_expression":
                target, value = self.expr(_child(node, "left")), self.expr(_child(node, "right"))
                return Assignment(target, self._operator(node), value, span=span)
            case "conditional_expression":
                parts = [self.expr(_child(node, f)) for f in ("condition", "consequence", "alternative")]
                return Ternary(*parts, span=span)
            case "cast_expression":
                type_node = _child(node, "type")
                return Cast(self.type(type_node), self.expr(_child(node, "value")), span=span)
            case "compound_literal_expression":
                braces = self._braces(_child(node, "value"))
                return replace(braces, type=self.type(_child(node, "type")), span=span)
            case "initializer_list":
                return self._braces(node)
            case "qualified_identifier":
                scope = node.child_by_field_name("scope")
                name = _child(node, "name")
                if scope is None or name.type != "identifier":
                    return Unknown(node.type, span=span)
                return OfType(self._base_type(scope), self.text.text(name), span=span)
            case "sizeof_expression":
                return self._size_of(node)
            case "type_descriptor":
                return self._type_as_expr(node)
            case _:
                return Unknown(node.type, span=span)

    def _operator(self, node: Node) -> str:
        return self.text.text(_child(node, "operator"))

    def _member(self, node: Node) -> CExpr:
        operator = node.child_by_field_name("operator")
        if operator is not None and operator.type != ".":
            return Unknown("member of a pointer", span=self.span(node))
        name = self.text.text(_child(node, "field"))
        return Member(self.expr(_child(node, "argument")), name, span=self.span(node))

    def _braces(self, node: Node) -> Braces:
        return Braces(None, tuple(self.expr(c) for c in _named(node)), span=self.span(node))

    def _size_of(self, node: Node) -> CExpr:
        type_node = node.child_by_field_name("type")
        span = self.span(node)
        return Unknown("sizeof of a value", span=span) if type_node is None else SizeOf(self.type(type_node), span=span)

    def _type_as_expr(self, node: Node) -> CExpr:
        """A template argument that the tree takes for a type: a constant's name or a product of some."""
        kind = _child(node, "type")
        return self.expr(kind) if kind.type == "type_identifier" else Unknown(node.type, span=self.span(node))

    def _call(self, node: Node) -> CExpr:
        span = self.span(node)
        fn = _child(node, "function")
        args = tuple(self.expr(a) for a in _named(_child(node, "arguments")))
        match fn.type:
            case "identifier":
                return CallOf(self.text.text(fn), args, span=span)
            case "primitive_type" | "sized_type_specifier":
                return self._cast_call(fn, args, span)
            case "template_function":
                return self._template_call(fn, args, span)
            case "field_expression":
                member = self.expr(fn)
                if isinstance(member, Member):
                    return CallOf(member.name, args, receiver=member.base, span=span)
            case _:
                pass
        return Unknown(f"call of a {fn.type}", span=span)

    def _cast_call(self, fn: Node, args: tuple[CExpr, ...], span: Span) -> CExpr:
        return Cast(self._base_type(fn), args[0], span=span) if len(args) == 1 else Unknown("cast", span=span)

    def _template_call(self, fn: Node, args: tuple[CExpr, ...], span: Span) -> CExpr:
        name = self.text.text(_child(fn, "name"))
        arguments = _named(_child(fn, "arguments"))
        if name in _CASTS:
            known = name == "static_cast" and len(args) == 1 and len(arguments) == 1
            return Cast(self.type(arguments[0]), args[0], span=span) if known else Unknown(name, span=span)
        return CallOf(name, args, tuple(self.expr(a) for a in arguments), span=span)

    # ---- types -------------------------------------------------------------------------------------------------------

    def type(self, node: Node) -> CType:
        """The type of a `type_descriptor` or of a type's name."""
        if node.type != "type_descriptor":
            return self._base_type(node)
        base = self._base_type(_child(node, "type"), _is_const(node, self.text))
        declarator = node.child_by_field_name("declarator")
        return base if declarator is None else self._declared(base, declarator)[0]

    def type_of(self, node: Node, kind: Node) -> CType:
        """The result type of a function definition `node`."""
        base = self._base_type(kind, _is_const(node, self.text))
        declarator = _child(node, "declarator")
        while declarator.type in ("pointer_declarator", "reference_declarator"):
            pointer = declarator.type == "pointer_declarator"
            base = replace(base, pointers=base.pointers + pointer, reference=base.reference or not pointer)
            declarator = declarator.child_by_field_name("declarator") or _named(declarator)[-1]
        return base

    def typedefs(self, node: Node, kind: Node) -> Iterator[tuple[CType, str]]:
        """(type, new name) of a `type_definition`."""
        base = self._base_type(kind, _is_const(node, self.text))
        for full, name, _, _ in self._declarators(base, node):
            yield full, name

    def _base_type(self, node: Node, const: bool = False) -> CType:
        span = self.span(node)
        if node.type == "template_type":
            args = tuple(self.expr(a) for a in _named(_child(node, "arguments")))
            return CType(self.text.text(_child(node, "name")), args, const, span=span)
        return CType(" ".join(self.text.text(node).split()), (), const, span=span)

    def _declared(self, base: CType, node: Node) -> tuple[CType, str]:
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
            inner = next((c for c in _named(node) if "declarator" in c.type or c.type.endswith("identifier")), None)
        return (base, "") if inner is None else self._declared(base, inner)

    # ---- declarations ------------------------------------------------------------------------------------------------

    def parameters(self, node: Node) -> tuple[Parameter, ...]:
        """Of a `parameter_list` or `template_parameter_list`; a type parameter has the type `typename`."""
        return tuple(self._parameter(c) for c in _named(node))

    def _parameter(self, node: Node) -> Parameter:
        span = self.span(node)
        kind, declarator = node.child_by_field_name("type"), node.child_by_field_name("declarator")
        if node.type not in ("parameter_declaration", "optional_parameter_declaration") or kind is None:
            name = next((self.text.text(c) for c in _named(node) if c.type == "type_identifier"), "")
            return Parameter(CType("typename", span=span), name, span=span)
        base = self._base_type(kind, _is_const(node, self.text))
        full, name = (base, "") if declarator is None else self._declared(base, declarator)
        return Parameter(full, name, span=span)

    def fields(self, body: Node) -> Iterator[FieldOf]:
        """Members of a `field_declaration_list`, one a declarator."""
        for node in _named(body):
            if node.type == "field_declaration":
                static = any(c.type == "storage_class_specifier" for c in node.children)
                base = self._base_type(_child(node, "type"), _is_const(node, self.text))
                for full, name, value, span in self._declarators(base, node):
                    yield FieldOf(full, name, value, static, span=span)

    def _declarators(self, base: CType, node: Node) -> Iterator[tuple[CType, str, CExpr | None, Span]]:
        """(type, name, value, span) of each declarator of a declaration of a field, a variable or a type."""
        for at, child in enumerate(node.children):
            if node.field_name_for_child(at) != "declarator":
                continue
            value = child.child_by_field_name("value") if child.type == "init_declarator" else _default(node, at)
            inner = _child(child, "declarator") if child.type == "init_declarator" else child
            full, name = self._declared(base, inner)
            if value is not None and value.type == "argument_list":
                yield replace(full, name=f"{full.name} initialised by a call"), name, None, self.span(child)
            else:
                yield full, name, None if value is None else self.expr(value), self.span(child)

    def declarations(self, node: Node) -> tuple[Declare, ...]:
        """Of a `declaration`, one a declarator."""
        base = self._base_type(_child(node, "type"), _is_const(node, self.text))
        constexpr = any(self.text.text(c) == "constexpr" for c in node.children)
        whole = self.span(node)
        parts = list(self._declarators(base, node))
        return tuple(Declare(t, n, v, constexpr, span=whole if len(parts) == 1 else s) for t, n, v, s in parts)

    # ---- statements --------------------------------------------------------------------------------------------------

    def block(self, node: Node) -> Block:
        return Block(tuple(s for c in _named(node) for s in self.statements(c)), span=self.span(node))

    def statements(self, node: Node) -> tuple[CStmt, ...]:
        """One statement, or a declaration's several."""
        if node.type in ("comment", "static_assert_declaration"):
            return ()
        try:
            return self.declarations(node) if node.type == "declaration" else (self.statement(node),)
        except MissingPart:
            return (UnknownStmt(node.type, span=self.span(node)),)

    def statement(self, node: Node) -> CStmt:
        span = self.span(node)
        match node.type:
            case "compound_statement":
                return self.block(node)
            case "expression_statement":
                return self._expression_statement(node)
            case "if_statement":
                other = node.child_by_field_name("alternative")
                orelse = None if other is None else self._branch(_named(other)[-1])
                condition = self.expr(_child(node, "condition"))
                return IfElse(condition, self._branch(_child(node, "consequence")), orelse, span=span)
            case "for_statement":
                return self._for(node)
            case "while_statement":
                return WhileLoop(self.expr(_child(node, "condition")), self._branch(_child(node, "body")), span=span)
            case "return_statement":
                inner = _named(node)
                return Return(self.expr(inner[0]) if inner else None, span=span)
            case "break_statement":
                return BreakLoop(span=span)
            case "continue_statement":
                return ContinueLoop(span=span)
            case _:
                return UnknownStmt(node.type, span=span)

    def _branch(self, node: Node) -> CStmt:
        """A controlled statement; always a block, so that braces make no difference."""
        return (
            self.block(node)
            if node.type == "compound_statement"
            else Block(self.statements(node), span=self.span(node))
        )

    def _expression_statement(self, node: Node) -> CStmt:
        inner = _named(node)
        if not inner:
            return Block((), span=self.span(node))
        if inner[0].type == "gnu_asm_expression":
            return self._asm(inner[0])
        return Evaluate(self.expr(inner[0]), span=self.span(node))

    def _for(self, node: Node) -> CStmt:
        init = node.child_by_field_name("initializer")
        condition, step = node.child_by_field_name("condition"), node.child_by_field_name("update")
        start: tuple[CStmt, ...] = ()
        if init is not None:
            start = (
                self.statements(init)
                if init.type == "declaration"
                else (Evaluate(self.expr(init), span=self.span(init)),)
            )
        return ForLoop(
            start,
            None if condition is None else self.expr(condition),
            None if step is None else self.expr(step),
            self._branch(_child(node, "body")),
            span=self.span(node),
        )

    # ---- asm ---------------------------------------------------------------------------------------------------------

    def _asm(self, node: Node) -> Asm:
        template = re.sub(r"\\[nt]", " ", self.string(_child(node, "assembly_code")))
        clobbers = node.child_by_field_name("clobbers")
        return Asm(
            " ".join(template.split()),
            any(self.text.text(c) == "volatile" for c in node.children),
            self._operands(node.child_by_field_name("output_operands")),
            self._operands(node.child_by_field_name("input_operands")),
            () if clobbers is None else tuple(self.string(c) for c in _named(clobbers)),
            span=self.span(node),
        )

    def _operands(self, node: Node | None) -> tuple[Operand, ...]:
        if node is None:
            return ()
        return tuple(
            Operand(self.string(_child(c, "constraint")), self.expr(_child(c, "value")), span=self.span(c))
            for c in _named(node)
        )

    def string(self, node: Node) -> str:
        """The contents of string literals beside each other; a macro's in place of what masks it."""
        if node.type == "concatenated_string":
            return "".join(self.string(c) for c in _named(node))
        if self.place is not None:
            return self.text.text(node).strip('"')
        written = self.text.file.data[node.start_byte : node.end_byte].decode("latin-1")
        return (written if written.startswith('"') else self.macros[written].body).strip('"')


def read_code(code: str, reader: Reader, place: Span) -> CExpr:
    """An expression that is no node of a text, such as a macro's replacement, as if it stood at `place`."""
    code = f"int x = ({code});"
    tree = parse_snippet(code)
    text = replace(reader.text, masked=code.encode("latin-1"), tree=tree)
    if tree.root_node.has_error:
        return Unknown("macro that is no expression", span=place)
    declared = replace(reader, text=text, place=place).declarations(tree.root_node.children[0])
    return declared[0].value or Unknown("empty macro", span=place)


def _named(node: Node) -> list[Node]:
    return [c for c in node.named_children if c.type != "comment"]


def _child(node: Node, field: str) -> Node:
    child = node.child_by_field_name(field)
    if child is None:
        raise MissingPart
    return child


def _default(node: Node, at: int) -> Node | None:
    """The initialiser after the declarator `at` of a field declaration."""
    return next(
        (
            c
            for x, c in enumerate(node.children[at + 1 : at + 3], at + 1)
            if node.field_name_for_child(x) == "default_value"
        ),
        None,
    )


def _is_const(node: Node, text: ParsedText) -> bool:
    return any(c.type == "type_qualifier" and text.text(c) in ("const", "constexpr") for c in node.children)


def _number(text: str, span: Span) -> CExpr:
    """The tree has `-1` as one literal in some places."""
    if text[:1] in "-+":
        return Prefix(text[0], Number(text[1:], span=span), span=span)
    return Number(text, span=span)
