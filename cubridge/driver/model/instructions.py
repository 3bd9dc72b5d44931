"""Which instructions that order or move data the lines of a kernel text reach, whatever the functions between are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from tree_sitter import Node

from cubridge.driver.kernels import ChosenKernel
from cubridge.frontend.cuda.structure import FunctionText, Program, read_program
from cubridge.frontend.cuda.text import ParsedText, folder_headers, read_unit
from cubridge.frontend.cuda.vocabulary import BUILTIN_STATEMENTS, INSTRUCTIONS, normal_ptx
from cubridge.ir.contract import Instantiation
from cubridge.ir.nodes import Copy, CopyAsync, Gemm, Op, Stmt
from cubridge.ir.source import SourceFile

TILES: Final[Mapping[str, re.Pattern[str]]] = {
    "copy_async": re.compile(r"cp\.async\.(c[ag]|bulk\.tensor|bulk\.shared)"),
    "gemm": re.compile(r"(?<!wg)mma\.sync"),
    "gemm_async": re.compile(r"wgmma\.mma_async"),
}
"""Operations on whole tiles, each of many instructions, by a part of their PTX."""
_BLOCK_SYNC: Final = re.compile(r"(bar\.sync|barrier\.sync(\.aligned)?) 0;")


def ordering() -> frozenset[str]:
    """Operations of CuIR that are one instruction each, without a result."""
    return frozenset(i.op for i in INSTRUCTIONS.values() if i.result is None) | {*BUILTIN_STATEMENTS.values()}


def operation_of(statement: Stmt) -> str | None:
    """The name of what a statement orders or moves; None for one that does neither."""
    match statement:
        case Gemm():
            return "gemm_async" if statement.asynchronous else "gemm"
        case CopyAsync() | Copy():
            return statement.op
        case Op() if statement.op in ordering():
            return statement.op
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Site:
    """A call or an asm of the kernel text, by its first line, and the operations that it reaches, with inlining. `in_entry`: in the
    kernel itself, not in a function that it calls."""

    line: int
    reaches: Counter[str]
    in_entry: bool


@dataclass
class Instructions:
    """The operations of a kernel text. `sites`: those of its own functions that reach any; `totals`: of the kernel, inlined."""

    program: Program
    entry: str
    _reached: dict[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])

    @staticmethod
    def of(kernel: ChosenKernel, source: SourceFile, instance: Instantiation) -> Instructions:
        """Errors: CU420, CU421."""
        headers = folder_headers(*kernel.text.include_dirs)
        unit = read_unit(source, dict(instance.macros), headers)
        return Instructions(read_program(unit), kernel.text.contract.entry)

    @property
    def totals(self) -> Counter[str]:
        return self._function(self.entry, ())

    def sites(self) -> list[Site]:
        """In the text of the kernel itself, not in its headers."""
        text = self.program.unit.main
        found: list[Site] = []
        for function in self._all_functions():
            if function.file is text.file:
                for node in interesting(function.node):
                    reaches = self._node(text, node, ())
                    if reaches:
                        found.append(Site(node.start_point[0] + 1, reaches, function.name == self.entry))
        return found

    def _all_functions(self) -> Iterator[FunctionText]:
        for functions in self.program.functions.values():
            yield from functions
        for struct in self.program.structs.values():
            yield from struct.methods

    def _named(self, name: str) -> Iterator[FunctionText]:
        yield from self.program.functions.get(name, ())
        for struct in self.program.structs.values():
            yield from (m for m in struct.methods if m.name == name)

    def _function(self, name: str, above: tuple[str, ...]) -> Counter[str]:
        """Of overloads, each operation as often as the one with the most of it has."""
        if name in above:
            return Counter()
        if name not in self._reached:
            total: Counter[str] = Counter()
            for function in self._named(name):
                total |= self._body(function, (*above, name))
            self._reached[name] = total
        return self._reached[name]

    def _body(self, function: FunctionText, above: tuple[str, ...]) -> Counter[str]:
        total: Counter[str] = Counter()
        for node in interesting(function.node):
            total += self._node(function.reader.text, node, above)
        return total

    def _node(self, text: ParsedText, node: Node, above: tuple[str, ...]) -> Counter[str]:
        if node.type == "gnu_asm_expression":
            return Counter(_of_ptx(_strings(text, node)))
        name = _called(text, node)
        if name in BUILTIN_STATEMENTS:
            return Counter([BUILTIN_STATEMENTS[name]])
        return self._function(name, above)


def interesting(function: Node) -> Iterator[Node]:
    """Calls and asm statements of a function, each once, those inside of arguments too."""
    stack = [function]
    while stack:
        node = stack.pop()
        if node.type in ("call_expression", "gnu_asm_expression"):
            yield node
        stack += reversed(node.children)


def _called(text: ParsedText, node: Node) -> str:
    """`f` of `f(x)`, `f<2>(x)` and `a.f(x)`."""
    function = node.child_by_field_name("function")
    while function is not None and function.type not in ("identifier", "field_identifier"):
        function = function.child_by_field_name("name") or function.child_by_field_name("field")
    return "" if function is None else text.text(function)


def _strings(text: ParsedText, node: Node) -> str:
    """The template of an asm: the literals before its first operand."""
    code = node.child_by_field_name("assembly_code")
    literal = text.text(node) if code is None else text.text(code)
    return "".join(re.findall(r'"((?:\\.|[^"\\])*)"', literal)).replace("\\n", " ").replace("\\t", " ")


@cache
def _of_ptx(template: str) -> tuple[str, ...]:
    ptx = normal_ptx(template)
    known = INSTRUCTIONS.get(ptx)
    if known is not None:
        return () if known.result is not None else (known.op,)
    if _BLOCK_SYNC.search(ptx):
        return ("block_sync",)
    return tuple(op for op, pattern in TILES.items() if pattern.search(ptx))
