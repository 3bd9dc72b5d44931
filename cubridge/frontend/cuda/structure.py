"""What a translation unit declares, by name."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from cubridge.frontend.cuda.macros import Macro
from cubridge.frontend.cuda.read import MissingPart, Reader, read_code
from cubridge.frontend.cuda.syntax import Block, CExpr, CType, FieldOf, Parameter
from cubridge.frontend.cuda.text import KernelHead, ParsedText, TranslationUnit
from cubridge.ir.source import SourceFile, Span


@dataclass(frozen=True, slots=True)
class FunctionText:
    """A function as declared; its body is read when asked for. `launch_bounds` of a kernel, as expressions."""

    name: str
    params: tuple[Parameter, ...]
    template_params: tuple[Parameter, ...]
    result: CType
    node: Node
    reader: Reader
    is_kernel: bool
    launch_bounds: tuple[CExpr, ...]

    @property
    def span(self) -> Span:
        return self.reader.span(self.node)

    @property
    def file(self) -> SourceFile:
        return self.reader.text.file

    def body(self) -> Block:
        body = self.node.child_by_field_name("body")
        return Block((), span=self.span) if body is None else self.reader.block(body)

    @property
    def head_span(self) -> Span:
        """The signature."""
        body = self.node.child_by_field_name("body")
        end = self.node.end_byte if body is None else body.start_byte
        return Span(self.file, self.node.start_byte, end)


@dataclass(frozen=True, slots=True)
class StructText:
    name: str
    template_params: tuple[Parameter, ...]
    fields: tuple[FieldOf, ...]
    methods: tuple[FunctionText, ...]
    node: Node
    reader: Reader

    @property
    def span(self) -> Span:
        return self.reader.span(self.node)

    def field(self, name: str) -> FieldOf | None:
        return next((f for f in self.fields if f.name == name), None)


@dataclass(frozen=True, slots=True)
class ConstantText:
    """A `constexpr` or `const` variable at file scope."""

    name: str
    type: CType
    value: CExpr
    node: Node
    reader: Reader


@dataclass(frozen=True, slots=True)
class Program:
    """The declarations of a translation unit. Functions of one name are overloads."""

    unit: TranslationUnit
    functions: dict[str, list[FunctionText]] = field(default_factory=dict[str, list[FunctionText]])
    structs: dict[str, StructText] = field(default_factory=dict[str, StructText])
    constants: dict[str, ConstantText] = field(default_factory=dict[str, ConstantText])
    aliases: dict[str, tuple[CType, Node, Reader]] = field(default_factory=dict[str, tuple[CType, Node, Reader]])
    assertions: list[tuple[ParsedText, Node, Reader]] = field(default_factory=list[tuple[ParsedText, Node, Reader]])

    @property
    def file(self) -> SourceFile:
        return self.unit.main.file

    def macro(self, name: str) -> Macro | None:
        return self.unit.macros.get(name)

    def kernels(self) -> list[FunctionText]:
        return [f for fs in self.functions.values() for f in fs if f.is_kernel]


def read_program(unit: TranslationUnit) -> Program:
    program = Program(unit)
    for text in unit.texts:
        _Declarations(program, text).items(text.tree.root_node)
    return program


class _Declarations:
    def __init__(self, program: Program, text: ParsedText) -> None:
        self.program = program
        self.text = text
        self.reader = Reader(text, program.unit.macros)

    def items(self, parent: Node) -> None:
        for node in parent.named_children:
            try:
                self.item(node, ())
            except MissingPart:
                continue  # a declaration of another kind: unknown where it is used

    def item(self, node: Node, template: tuple[Parameter, ...]) -> None:
        match node.type:
            case "template_declaration":
                params = node.child_by_field_name("parameters")
                inner = node.named_children[-1]
                self.item(inner, () if params is None else self.reader.parameters(params))
            case "linkage_specification":
                self._linkage(node, template)
            case "function_definition":
                function = self.function(node, template)
                self.program.functions.setdefault(function.name, []).append(function)
            case "struct_specifier":
                self.struct(node, template)
            case "declaration":
                self.declaration(node)
            case "static_assert_declaration":
                self.program.assertions.append((self.text, node, self.reader))
            case "type_definition":
                self._typedef(node)
            case "alias_declaration":
                self._alias(node)
            case _:
                pass

    def _linkage(self, node: Node, template: tuple[Parameter, ...]) -> None:
        """`extern "C"` before a declaration or a block of them."""
        body = node.child_by_field_name("body")
        if body is not None and body.type == "declaration_list":
            self.items(body)
        elif body is not None:
            self.item(body, template)

    def function(self, node: Node, template: tuple[Parameter, ...]) -> FunctionText:
        head = declarator_of(node)
        name = self.text.text(head.child_by_field_name("declarator") or head)
        params = head.child_by_field_name("parameters")
        kind = node.child_by_field_name("type")
        result = CType("void", span=self.reader.span(node)) if kind is None else self.reader.type_of(node, kind)
        bounds = next((c for c in node.children if c.type == "launch_bounds"), None)
        macro_head = next((h for h in self.text.kernel_heads if node.start_byte <= h.start < head.start_byte), None)
        return FunctionText(
            name=name,
            params=() if params is None else self.reader.parameters(params),
            template_params=template,
            result=result,
            node=node,
            reader=self.reader,
            is_kernel=macro_head is not None or any(c.type == "__global__" for c in node.children),
            launch_bounds=self._bounds(bounds, macro_head),
        )

    def _bounds(self, node: Node | None, head: KernelHead | None) -> tuple[CExpr, ...]:
        if node is not None:
            return tuple(self.reader.expr(c) for c in node.named_children)
        if head is None:
            return ()
        place = Span(self.text.file, head.start, head.start + 1)
        return tuple(read_code(b, self.reader, place) for b in head.launch_bounds)

    def struct(self, node: Node, template: tuple[Parameter, ...]) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return
        methods = tuple(self.function(c, ()) for c in body.named_children if c.type == "function_definition")
        fields = tuple(self.reader.fields(body))
        self.program.structs[self.text.text(name)] = StructText(
            self.text.text(name), template, fields, methods, node, self.reader
        )

    def declaration(self, node: Node) -> None:
        kind = node.child_by_field_name("type")
        if kind is not None and kind.type == "struct_specifier":
            self.struct(kind, ())
            return
        if not any(c.type == "init_declarator" for c in node.named_children):
            return
        for declared in self.reader.declarations(node):
            if declared.value is not None and (declared.constexpr or declared.type.const):
                constant = ConstantText(declared.name, declared.type, declared.value, node, self.reader)
                self.program.constants[declared.name] = constant

    def _typedef(self, node: Node) -> None:
        kind = node.child_by_field_name("type")
        if kind is not None:
            for full, name in self.reader.typedefs(node, kind):
                self.program.aliases[name] = (full, node, self.reader)

    def _alias(self, node: Node) -> None:
        """`using NAME = TYPE`."""
        name, kind = node.child_by_field_name("name"), node.child_by_field_name("type")
        if name is not None and kind is not None:
            self.program.aliases[self.text.text(name)] = (self.reader.type(kind), node, self.reader)


def declarator_of(node: Node) -> Node:
    """Of a function's definition: its name and parameters."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or (declarator.named_children or [None])[-1]
    return declarator or node
