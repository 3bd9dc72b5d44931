"""What lines of a kernel text say beside the instructions that they reach: numbers of these, the tensors that are read, and which
loop the lines stand in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Final, TypeVar

from tree_sitter import Node

from cubridge.driver.model.instructions import interesting
from cubridge.frontend.cuda.constants import Constants
from cubridge.frontend.cuda.structure import FunctionText, Program
from cubridge.frontend.cuda.syntax import Asm, CallOf, CExpr, CNode, Ident, Number
from cubridge.frontend.cuda.vocabulary import INSTRUCTIONS, normal_ptx
from cubridge.ir.diagnostics import CuError

N = TypeVar("N", bound=CNode)
Numbers = tuple[int | None, ...]
_LOOPS: Final = frozenset({"for_statement", "while_statement", "do_statement"})
_DEEPEST: Final = 8
"""Calls inside of calls that numbers are followed through."""


@dataclass
class Operands:
    """Of one text. `entry`: the kernel function."""

    program: Program
    entry: FunctionText

    # ---- numbers ----

    def numbers(self, op: str, lines: frozenset[int]) -> set[Numbers]:
        """The operands of each instruction `op` that calls and asm in these lines reach; None for one that is no constant."""
        found: set[Numbers] = set()
        for functions in self.program.functions.values():
            for function in functions:
                if function.file is self.program.file:
                    for node in interesting(function.node):
                        if node.start_point[0] + 1 in lines:
                            found |= {n for name, n in self._of(function, node, {}, 0) if name == op}
        return found

    def _of(
        self, function: FunctionText, node: Node, values: Mapping[str, int | None], depth: int
    ) -> Iterator[tuple[str, Numbers]]:
        if node.type == "gnu_asm_expression":
            yield from self._of_asm(function, node, values)
            return
        call = function.reader.expr(node)
        if not isinstance(call, CallOf) or depth == _DEEPEST:
            return
        for called in self.program.functions.get(call.fn, ()):
            given = [*zip(called.template_params, call.template_args, strict=False)]
            given += zip(called.params, call.args, strict=False)
            inner = {p.name: self._number(arg, values) for p, arg in given}
            for below in interesting(called.node):
                yield from self._of(called, below, inner, depth + 1)

    def _of_asm(
        self, function: FunctionText, node: Node, values: Mapping[str, int | None]
    ) -> Iterator[tuple[str, Numbers]]:
        statement = function.reader.statement(node.parent or node)
        if isinstance(statement, Asm) and (known := INSTRUCTIONS.get(normal_ptx(statement.template))) is not None:
            operands = (*statement.outputs, *statement.inputs)
            yield known.op, tuple(self._number(operands[n].value, values) for n in known.operands if n < len(operands))

    def _number(self, expr: CExpr, values: Mapping[str, int | None]) -> int | None:
        try:
            number = Constants(self.program).evaluate(_with_values(expr, values))
        except CuError:
            return None
        return number if isinstance(number, int) else None

    # ---- tensors ----

    def fields(self, lines: frozenset[int]) -> frozenset[str]:
        """The fields of `Params` that calls of the kernel in these lines read, by way of its locals."""
        names: set[str] = set()
        found: set[str] = set()
        waiting = [n for n in interesting(self.entry.node) if n.start_point[0] + 1 in lines]
        while waiting:
            for node in _all(waiting.pop()):
                if node.type == "field_expression" and self._text(node.child_by_field_name("argument")) == self._params:
                    found.add(self._text(node.child_by_field_name("field")))
                elif node.type == "identifier" and (name := self._text(node)) not in names:
                    names.add(name)
                    waiting += self._definitions.get(name, [])
        return frozenset(found)

    @property
    def _params(self) -> str:
        return self.entry.params[0].name if self.entry.params else ""

    @cached_property
    def _definitions(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in _all(self.entry.node):
            if node.type == "init_declarator" and (value := node.child_by_field_name("value")) is not None:
                found.setdefault(self._text(node.child_by_field_name("declarator")), []).append(value)
        return found

    def _text(self, node: Node | None) -> str:
        return "" if node is None else self.entry.reader.text.text(node)

    # ---- lines ----

    @property
    def lines(self) -> range:
        """Those of the kernel function."""
        return range(self.entry.node.start_point[0] + 1, self.entry.node.end_point[0] + 2)

    def loops(self, lines: frozenset[int]) -> list[range]:
        """The lines of each loop of the kernel that begins in `lines`."""
        found = (n for n in _all(self.entry.node) if n.type in _LOOPS and n.start_point[0] + 1 in lines)
        return [range(n.start_point[0] + 1, n.end_point[0] + 2) for n in found]


def _all(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += node.children


def _with_values(node: N, values: Mapping[str, int | None]) -> N:
    """An expression with numbers for names; one that has none is left to fail."""
    if isinstance(node, Ident) and isinstance(values.get(node.name), int):
        return Number(str(values[node.name]), span=node.span)  # pyright: ignore[reportReturnType]
    changes = {f.name: _with_values(v, values) for f in fields(node) if isinstance(v := getattr(node, f.name), CNode)}
    return replace(node, **changes) if changes else node  # pyright: ignore[reportArgumentType]
