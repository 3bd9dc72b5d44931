"""Syntax trees to typed syntax (`syntax.py`): declarations and statements; expressions and types are `read_expr.py`'s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tree_sitter import Node

from cubridge.frontend.cuda.read_expr import ExprReader, MissingPart, child, named
from cubridge.frontend.cuda.syntax import (
    Asm,
    Block,
    BreakLoop,
    CExpr,
    ContinueLoop,
    CStmt,
    CType,
    Declare,
    Evaluate,
    FieldOf,
    ForLoop,
    IfElse,
    Operand,
    Parameter,
    Return,
    Unknown,
    UnknownStmt,
    WhileLoop,
)
from cubridge.frontend.cuda.text import parse_snippet
from cubridge.ir.source import Span


@dataclass(frozen=True, slots=True)
class Reader(ExprReader):
    """Reads nodes of one text."""

    # ---- declarations ------------------------------------------------------------------------------------------------

    def type_of(self, node: Node, kind: Node) -> CType:
        """The result type of a function definition `node`."""
        base = self.base_type(kind, self.text.is_const(node))
        declarator = child(node, "declarator")
        while declarator.type in ("pointer_declarator", "reference_declarator"):
            pointer = declarator.type == "pointer_declarator"
            base = replace(base, pointers=base.pointers + pointer, reference=base.reference or not pointer)
            declarator = declarator.child_by_field_name("declarator") or named(declarator)[-1]
        return base

    def typedefs(self, node: Node, kind: Node) -> Iterator[tuple[CType, str]]:
        """(type, new name) of a `type_definition`."""
        base = self.base_type(kind, self.text.is_const(node))
        for full, name, _, _ in self._declarators(base, node):
            yield full, name

    def parameters(self, node: Node) -> tuple[Parameter, ...]:
        """Of a `parameter_list` or `template_parameter_list`; a type parameter has the type `typename`."""
        return tuple(self._parameter(c) for c in named(node))

    def _parameter(self, node: Node) -> Parameter:
        span = self.span(node)
        kind, declarator = node.child_by_field_name("type"), node.child_by_field_name("declarator")
        if node.type not in ("parameter_declaration", "optional_parameter_declaration") or kind is None:
            name = next((self.text.text(c) for c in named(node) if c.type == "type_identifier"), "")
            return Parameter(CType("typename", span=span), name, span=span)
        base = self.base_type(kind, self.text.is_const(node))
        full, name = (base, "") if declarator is None else self.declared(base, declarator)
        return Parameter(full, name, span=span)

    def fields(self, body: Node) -> Iterator[FieldOf]:
        """Members of a `field_declaration_list`, one a declarator."""
        for node in named(body):
            if node.type == "field_declaration":
                static = any(c.type == "storage_class_specifier" for c in node.children)
                base = self.base_type(child(node, "type"), self.text.is_const(node))
                for full, name, value, span in self._declarators(base, node):
                    yield FieldOf(full, name, value, static, span=span)

    def _declarators(self, base: CType, node: Node) -> Iterator[tuple[CType, str, CExpr | None, Span]]:
        """(type, name, value, span) of each declarator of a declaration of a field, a variable or a type."""
        for at, part in enumerate(node.children):
            if node.field_name_for_child(at) != "declarator":
                continue
            value = part.child_by_field_name("value") if part.type == "init_declarator" else _default(node, at)
            inner = child(part, "declarator") if part.type == "init_declarator" else part
            full, name = self.declared(base, inner)
            if value is not None and value.type == "argument_list":
                yield replace(full, name=f"{full.name} initialised by a call"), name, None, self.span(part)
            else:
                yield full, name, None if value is None else self.expr(value), self.span(part)

    def declarations(self, node: Node) -> tuple[Declare, ...]:
        """Of a `declaration`, one a declarator."""
        base = self.base_type(child(node, "type"), self.text.is_const(node))
        constexpr = any(self.text.text(c) == "constexpr" for c in node.children)
        whole = self.span(node)
        parts = list(self._declarators(base, node))
        return tuple(Declare(t, n, v, constexpr, span=whole if len(parts) == 1 else s) for t, n, v, s in parts)

    # ---- statements --------------------------------------------------------------------------------------------------

    def block(self, node: Node) -> Block:
        return Block(tuple(s for c in named(node) for s in self.statements(c)), span=self.span(node))

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
                orelse = None if other is None else self._branch(named(other)[-1])
                condition = self.expr(child(node, "condition"))
                return IfElse(condition, self._branch(child(node, "consequence")), orelse, span=span)
            case "for_statement":
                return self._for(node)
            case "while_statement":
                return WhileLoop(self.expr(child(node, "condition")), self._branch(child(node, "body")), span=span)
            case "return_statement":
                inner = named(node)
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
        inner = named(node)
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
            self._branch(child(node, "body")),
            span=self.span(node),
        )

    # ---- asm ---------------------------------------------------------------------------------------------------------

    def _asm(self, node: Node) -> Asm:
        template = re.sub(r"\\[nt]", " ", self.string(child(node, "assembly_code")))
        clobbers = node.child_by_field_name("clobbers")
        return Asm(
            " ".join(template.split()),
            any(self.text.text(c) == "volatile" for c in node.children),
            self._operands(node.child_by_field_name("output_operands")),
            self._operands(node.child_by_field_name("input_operands")),
            () if clobbers is None else tuple(self.string(c) for c in named(clobbers)),
            span=self.span(node),
        )

    def _operands(self, node: Node | None) -> tuple[Operand, ...]:
        if node is None:
            return ()
        return tuple(
            Operand(self.string(child(c, "constraint")), self.expr(child(c, "value")), span=self.span(c))
            for c in named(node)
        )

    def string(self, node: Node) -> str:
        """The contents of string literals beside each other; a macro's in place of what masks it."""
        if node.type == "concatenated_string":
            return "".join(self.string(c) for c in named(node))
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
