"""What a translation unit declares, by name, and which parts of it the kernel is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tree_sitter import Node

from cubridge.frontend.cuda.read import MissingPart, Reader, read_code
from cubridge.frontend.cuda.syntax import Block, CExpr, CType, FieldOf, Parameter
from cubridge.frontend.cuda.text import KernelHead, Macro, ParsedText, TranslationUnit
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.source import SourceFile, Span
from cubridge.ir.source_map import SOURCE_REGIONS, SourceMap, SourceRegion

_MARKER: Final = re.compile(rb"^[ \t]*//[ \t]*@(region|endregion)\b[ \t]*([^\r\n]*?)[ \t]*\r?$", re.MULTILINE)


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
                body = node.child_by_field_name("body")
                if body is not None and body.type == "declaration_list":
                    self.items(body)
                elif body is not None:
                    self.item(body, template)
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
                for full, name in self._typedef(node):
                    self.program.aliases[name] = (full, node, self.reader)
            case "alias_declaration":
                name, kind = node.child_by_field_name("name"), node.child_by_field_name("type")
                if name is not None and kind is not None:
                    self.program.aliases[self.text.text(name)] = (self.reader.type(kind), node, self.reader)
            case _:
                pass

    def function(self, node: Node, template: tuple[Parameter, ...]) -> FunctionText:
        head = _function_declarator(node)
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

    def _typedef(self, node: Node) -> Iterator[tuple[CType, str]]:
        kind = node.child_by_field_name("type")
        if kind is not None:
            yield from self.reader.typedefs(node, kind)


def _function_declarator(node: Node) -> Node:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or (declarator.named_children or [None])[-1]
    return declarator or node


# ---- region markers --------------------------------------------------------------------------------------------------


def read_source_map(file: SourceFile) -> SourceMap:
    """The regions of a kernel text. Errors: CU422 for each marker that is unclosed, duplicate, unknown, out of order or missing."""
    faults: list[Diagnostic] = []
    regions: dict[str, SourceRegion] = {}
    opened: tuple[str, Span] | None = None
    at_fault: set[str] = set()
    for match in _MARKER.finditer(file.data):
        kind, name = match[1].decode(), match[2].decode("utf-8", errors="replace")
        place = _marker_span(file, match)
        if kind == "region":
            if opened is not None:
                faults.append(_unclosed(*opened))
                at_fault.add(opened[0])
            faults += _unknown(name, place, regions)
            opened = (name, place)
        elif opened is None or opened[0] != name:
            expected = "no region is open here" if opened is None else f"the open region is `{opened[0]}`"
            notes = () if opened is None else (Note("it is opened here", opened[1]),)
            faults.append(Diagnostic("CU422", f"`@endregion {name}` closes nothing: {expected}", place, notes))
            at_fault |= set() if opened is None else {opened[0]}
        else:
            regions.setdefault(
                name, SourceRegion(name, Span(file, _next_line(file, opened[1].end), _line_start(file, match)))
            )
            opened = None
    if opened is not None:
        faults.append(_unclosed(*opened))
        at_fault.add(opened[0])
    for name in SOURCE_REGIONS:
        if name not in regions and name not in at_fault:
            end = len(file.data)
            message = f"the kernel has no region `{name}`"
            faults.append(Diagnostic("CU422", message, Span(file, end, end), help=f"mark it by `// @region {name}`"))
    if faults:
        raise CuError(*faults)
    return SourceMap(file, tuple(sorted(regions.values(), key=lambda r: r.span.start)))


def _marker_span(file: SourceFile, match: re.Match[bytes]) -> Span:
    text = match[0].rstrip()
    start = match.start() + len(text) - len(text.lstrip())
    return Span(file, start, match.start() + len(text))


def _line_start(file: SourceFile, match: re.Match[bytes]) -> int:
    return file.data.rfind(b"\n", 0, match.start() + 1) + 1 if match.start() else 0


def _next_line(file: SourceFile, at: int) -> int:
    end = file.data.find(b"\n", at)
    return len(file.data) if end < 0 else end + 1


def _unclosed(name: str, place: Span) -> Diagnostic:
    return Diagnostic("CU422", f"region `{name}` is not closed", place, help=f"end it by `// @endregion {name}`")


def _unknown(name: str, place: Span, regions: dict[str, SourceRegion]) -> Iterator[Diagnostic]:
    if name not in SOURCE_REGIONS:
        yield Diagnostic("CU422", f"there is no region `{name}`", place, help=f"regions: {', '.join(SOURCE_REGIONS)}")
    elif name in regions:
        yield Diagnostic(
            "CU422", f"region `{name}` is marked twice", place, (Note("it is here as well", regions[name].span),)
        )
