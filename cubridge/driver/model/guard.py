"""What CUDA a model may write: the small language that regions are written in, checked on the syntax tree before any compiler sees
it. What is not listed is refused, so that no text reaches the host, the preprocessor, inline asm or memory that is not its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from tree_sitter import Node

from cubridge.driver.kernels import ChosenKernel
from cubridge.frontend.cuda.lemmas import load_lemmas
from cubridge.frontend.cuda.markers import read_source_map
from cubridge.frontend.cuda.structure import Program, read_program
from cubridge.frontend.cuda.text import ParsedText, folder_headers, read_unit
from cubridge.frontend.cuda.vocabulary import BUILTIN_FUNCTIONS, INSTRUCTIONS, normal_ptx
from cubridge.ir.contract import Instantiation
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

CODE: Final = "CU717"

_SYNTAX: Final = """
    comment function_definition function_declarator parameter_list parameter_declaration compound_statement declaration
    init_declarator array_declarator parenthesized_declarator reference_declarator for_statement if_statement else_clause
    condition_clause return_statement expression_statement assignment_expression update_expression binary_expression
    unary_expression conditional_expression parenthesized_expression call_expression argument_list subscript_expression
    subscript_argument_list field_expression field_identifier identifier type_identifier primitive_type type_qualifier
    type_descriptor cast_expression compound_literal_expression initializer_list number_literal true false struct_specifier
    field_declaration_list field_declaration
"""
_NODES: Final = frozenset(_SYNTAX.split())
"""Syntax that regions are written in."""
_FIELDS: Final = frozenset(("params", "tile_state", "row_state"))
"""Regions inside a struct."""
_QUALIFIERS: Final = frozenset(("const", "constexpr"))
_CONSTANTS: Final = frozenset(("INFINITY", "NAN"))
_MADE_OF_LEMMAS: Final = frozenset(("value", "rows", "columns"))
_COORDINATES: Final = frozenset(("warpgroup_index", "consumer_index"))
"""Values of the thread, which orchestration tests and regions do not."""
_PRAGMA: Final = re.compile(r"\s*#pragma unroll( \d{1,2})?\s*")
_DIRECTIVE: Final = re.compile(r"\s*(#|%:|\?\?=)")
_WRAPPER: Final = re.compile(r'\bDEVICE\s+\w+\s+(\w+)\([^)]*\)\s*\{[^}]*?asm(?:\s+volatile)?\s*\(\s*"([^"]*)"')
_DEFINED: Final = re.compile(r"^[ \t]*(?:template[^\n]*\n)?DEVICE[^\n(]*?\b(\w+)\(", re.MULTILINE)
_TRIVIA: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Guard:
    """Names that the regions of a kernel may use: `callable`, functions of values alone; `constants`; `types`; `pointers`, the
    parameters that hold the addresses of tensors, which the kernel's body moves; `functions`: all that the text and its headers
    define outside of regions, of which a region adds no overload; `regions`: those of each region."""

    callable: frozenset[str]
    constants: frozenset[str]
    types: frozenset[str]
    pointers: frozenset[str]
    functions: frozenset[str]
    regions: Mapping[str, frozenset[str]]

    @staticmethod
    @cache
    def of(kernel: ChosenKernel, instance: Instantiation) -> Guard:
        """The guard of a kernel's regions."""
        program = read_text(kernel, kernel.text.source, instance)
        contract = kernel.text.contract
        regions = _region_functions(kernel)
        values = {row.name for row in load_lemmas().rows if row.kind in _MADE_OF_LEMMAS} - _COORDINATES
        return Guard(
            callable=frozenset(values | BUILTIN_FUNCTIONS.keys() | set(_elementwise_wrappers(program))),
            constants=frozenset({*program.constants, *(m.name for m in contract.macros)} | _CONSTANTS),
            types=frozenset({*program.structs, *program.aliases}),
            pointers=frozenset(f.name for f in contract.params if f.c_type.is_pointer and not f.patched),
            functions=frozenset(
                {*program.functions} - frozenset().union(*regions.values()) | values | BUILTIN_FUNCTIONS.keys()
            ),
            regions=regions,
        )

    def check(self, kernel: ChosenKernel, source: SourceFile, regions: Sequence[str], instance: Instantiation) -> None:
        """`regions` of `source`, which a model wrote. Errors: CU717, each at its place; CU420, CU422 where it does not read."""
        spans = {r.name: r.span for r in read_source_map(source).regions if r.name in regions}
        faults = [fault for span in spans.values() for fault in _text_faults(span)]
        if faults:
            raise CuError(*faults)
        text = read_text(kernel, source, instance).unit.main
        for name, span in spans.items():
            nodes = [*_nodes_in(text.tree.root_node, span)]
            faults += _Region(self, text, nodes, name).faults()
        if faults:
            raise CuError(*sorted(set(faults), key=lambda f: f.span.start))


def read_text(kernel: ChosenKernel, source: SourceFile, instance: Instantiation) -> Program:
    """A text in place of the kernel's own."""
    headers = folder_headers(*kernel.text.include_dirs)
    return read_program(read_unit(source, dict(instance.macros), headers))


def _elementwise_wrappers(program: Program) -> Iterator[str]:
    """Functions that are one instruction from numbers to a number."""
    for text in program.unit.texts:
        for name, ptx in _WRAPPER.findall(text.file.text):
            instruction = INSTRUCTIONS.get(normal_ptx(ptx))
            if instruction is not None and instruction.result is not None:
                yield name


def _fault(message: str, span: Span, help: str | None = None) -> Diagnostic:
    return Diagnostic(CODE, message, span, help=help)


# ---- characters ------------------------------------------------------------------------------------------------------


def _text_faults(span: Span) -> Iterator[Diagnostic]:
    """What would make a compiler see another text than the syntax tree, or the region end elsewhere."""
    first = span.location[0]
    text = span.text
    for number, line in enumerate(text.split("\n"), first):
        place = Span.whole_line(span.file, number)
        if _DIRECTIVE.match(line) and not _PRAGMA.fullmatch(line):
            yield _fault("a region holds no preprocessor directive but `#pragma unroll`", place)
        elif "\\" in line or "??" in line:
            yield _fault("a region holds no backslash and no trigraph", place)
    code = _TRIVIA.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    if "/*" in code or "*/" in code:
        yield _fault("a comment does not end in its region", Span.whole_line(span.file, first))
    depth = 0
    for char in code:
        depth += (char in "({[") - (char in ")}]")
        if depth < 0:
            break
    if depth:
        yield _fault("the brackets of this region do not match", Span.whole_line(span.file, first))


# ---- syntax ----------------------------------------------------------------------------------------------------------


def _nodes_in(root: Node, span: Span) -> Iterator[Node]:
    """All nodes that begin in a span, in order."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.end_byte <= span.start or node.start_byte >= span.end:
            continue
        if node.start_byte >= span.start:
            yield node
        stack += reversed(node.children)


class _Region:
    """The check of one region. Names that it declares are its own, wherever they stand: the compiler knows scopes."""

    def __init__(self, guard: Guard, text: ParsedText, nodes: list[Node], name: str) -> None:
        self.guard = guard
        self.text = text
        self.nodes = nodes
        self.name = name
        self.is_fields = name in _FIELDS
        self.defined: set[str] = set()
        declared = [n for n in nodes if _is_declared(n)]
        self.functions = {
            self._of(n) for n in declared if n.parent is not None and n.parent.type == "function_declarator"
        }
        self.variables = {self._of(n) for n in declared} - self.functions
        self.structs = {self._of(n) for n in nodes if _is_struct_name(n)}
        self.params = {self._of(n) for n in declared if self._type_of(n) == "Params"}

    def faults(self) -> Iterator[Diagnostic]:
        for node in self.nodes:
            if node.is_named:
                yield from self._node(node)

    def _node(self, node: Node) -> Iterator[Diagnostic]:
        word = self._of(node)
        match node.type:
            case "pointer_declarator" if self.is_fields and _is_const_field(node, self.text):
                pass
            case kind if kind not in _NODES:
                yield self._refused(node, f"a region is not written with `{word.split(chr(10))[0][:40]}` ({kind})")
            case "type_qualifier" if word not in _QUALIFIERS:
                yield self._refused(node, f"a region is not written with `{word}`")
            case "type_identifier" if word not in self.guard.types | self.structs and word != "DEVICE":
                yield self._refused(node, f"the kernel has no type `{word}`")
            case "identifier" if not self._may_name(node, word):
                yield self._refused(node, f"a region may not use `{word}`", self._help(node))
            case "field_expression" if self._is_tensor(node):
                yield self._refused(node, f"a region may not use the tensor behind `{word}`")
            case "function_declarator" if self._overloads(node):
                yield self._refused(node, f"`{self._name_of(node)}` is a function of the kernel already")
            case "declaration" if not self.is_fields and _leaves_unset(node):
                yield self._refused(node, f"`{word}` has no value at first")
            case _:
                pass

    def _may_name(self, node: Node, word: str) -> bool:
        if _is_called(node):
            return word in self.guard.callable | self.functions
        return word in self.variables | self.functions | self.guard.constants

    def _help(self, node: Node) -> str:
        if _is_called(node):
            return f"it may call {', '.join(sorted(self.guard.callable))}, and functions that it defines"
        return "names are those that the region declares, and constants of the kernel"

    def _is_tensor(self, node: Node) -> bool:
        """A field with the name of a tensor, of anything but a variable of another type than `Params`."""
        base, name = node.child_by_field_name("argument"), node.child_by_field_name("field")
        if base is None or name is None or self._of(name) not in self.guard.pointers:
            return False
        return base.type != "identifier" or self._of(base) in self.params or self._of(base) not in self.variables

    def _overloads(self, node: Node) -> bool:
        """Does a definition have the name of a function that is not this region's, or that it has defined."""
        name = self._name_of(node)
        others = (names for region, names in self.guard.regions.items() if region != self.name)
        taken = name in self.guard.functions or name in self.defined or any(name in names for names in others)
        self.defined.add(name)
        return taken

    def _name_of(self, node: Node) -> str:
        name = node.child_by_field_name("declarator")
        return "" if name is None else self._of(name)

    def _type_of(self, node: Node) -> str:
        """The type that a declared name is declared with."""
        parent = node.parent
        while parent is not None and "declaration" not in parent.type:
            parent = parent.parent
        kind = None if parent is None else parent.child_by_field_name("type")
        return "" if kind is None else self._of(kind)

    def _of(self, node: Node) -> str:
        return self.text.text(node)

    def _refused(self, node: Node, message: str, help: str | None = None) -> Diagnostic:
        return _fault(message, self.text.span(node), help)


def _region_functions(kernel: ChosenKernel) -> dict[str, frozenset[str]]:
    """Functions that each region defines."""
    regions = read_source_map(kernel.text.source).regions
    return {r.name: frozenset(m[1] for m in _DEFINED.finditer(r.span.text)) for r in regions}


def _leaves_unset(node: Node) -> bool:
    """`float x;`: a local without a value. Arrays are filled by loops; whether they are is for lifting to see."""
    return any(d.type == "identifier" for d in node.children_by_field_name("declarator"))


def _is_called(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "call_expression" and parent.child_by_field_name("function") == node


def _is_declared(node: Node) -> bool:
    """An identifier that a declaration introduces."""
    parent = node.parent
    if node.type not in ("identifier", "field_identifier") or parent is None:
        return False
    if parent.type in ("parenthesized_declarator", "reference_declarator"):
        return True
    return parent.type.endswith(("declarator", "declaration")) and node in parent.children_by_field_name("declarator")


def _is_struct_name(node: Node) -> bool:
    parent = node.parent
    return node.type == "type_identifier" and parent is not None and parent.type == "struct_specifier"


def _is_const_field(node: Node, text: ParsedText) -> bool:
    """`const float* slope;`: what a captured tensor is declared as."""
    parent = node.parent
    if parent is None or parent.type != "field_declaration":
        return False
    return any(c.type == "type_qualifier" and text.text(c) == "const" for c in parent.children)
