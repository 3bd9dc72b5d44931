"""Locals by number: bodies are equal here whatever their locals are called. Everything else keeps its name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from cubridge.ir.nodes import Assign, Expr, For, Function, If, Loop, Name, Node, RegisterTile, Stmt
from cubridge.ir.walk import map_children

_SCOPES: Final = frozenset(("tile", "row", "keys"))


def numbered_locals(function: Function) -> Function:
    """The function with its locals called `%0`, `%1`, .. in the order in which they first appear. A name that a block gives
    again, after the block that gave it first has ended, is another local."""
    numbering = _Numbering(frozenset(function.params) | _SCOPES)
    body = numbering.block(function.body)
    return replace(function, body=body, result=None if function.result is None else numbering.expr(function.result))


def numbered_body(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The same for the body of a kernel."""
    return _Numbering(_SCOPES).block(body)


@dataclass
class _Numbering:
    """`numbers`: local -> its new name; `open`: those whose block has not ended."""

    kept: frozenset[str]
    numbers: dict[str, str] = field(default_factory=dict[str, str])
    open: set[str] = field(default_factory=set[str])
    count: int = 0

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        before = set(self.open)
        made = tuple(self._statement(s) for s in body)
        self.open = before
        return made

    def _declare(self, name: str) -> str:
        if name in self.kept:
            return name
        if name not in self.open:
            self.numbers[name] = f"%{self.count}"
            self.open.add(name)
            self.count += 1
        return self.numbers[name]

    def _statement(self, statement: Stmt) -> Stmt:
        match statement:
            case Assign(Name(name) as target, value):
                value = self.expr(value)
                return replace(statement, target=replace(target, id=self._declare(name)), value=value)
            case RegisterTile(name):
                made = map_children(statement, self._node)
                return replace(made, name=self._declare(name))
            case For(var, start, stop, body):
                start, stop = self.expr(start), self.expr(stop)
                before = set(self.open)
                self.open.discard(var)
                number = self._declare(var)
                body = self.block(body)
                self.open = before
                return replace(statement, var=number, start=start, stop=stop, body=body)
            case If(condition, then, orelse):
                condition = self.expr(condition)
                return replace(statement, condition=condition, then=self.block(then), orelse=self.block(orelse))
            case Loop(body):
                return replace(statement, body=self.block(body))
            case _:
                return map_children(statement, self._node)

    def expr(self, expr: Expr) -> Expr:
        changed = self._node(expr)
        assert isinstance(changed, Expr)
        return changed

    def _node(self, node: Node) -> Node:
        if isinstance(node, Name):
            return replace(node, id=self.numbers.get(node.id, node.id))
        return map_children(node, self._node)
