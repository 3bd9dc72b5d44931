"""Forward analysis of structured code: facts before each statement, joined where ways meet, iterated over loops to a fixed point.

An analysis says what a statement does to the facts; `None` stands for facts at a place that no way reaches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, Generic, TypeVar

from cubridge.ir.body_types import constant_range
from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.evaluate import known_int
from cubridge.ir.nodes import Break, Expr, For, If, Kernel, Loop, Node, Stmt

F = TypeVar("F")
Facts = frozenset[F]

MAX_UNROLL: Final = 16


class Flow(Generic[F]):
    """Base of analyses over a kernel body. `must`: facts hold on every way (joined by intersection), else on some way (union)."""

    must: ClassVar[bool] = True

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.faults: dict[tuple[str, int, str], Diagnostic] = {}
        self.unrolled: dict[str, int] = {}
        """Values of the loop variables that are known, in loops over a constant range."""
        self._breaks: list[list[Facts[F]]] = []

    # ---- what an analysis says ---------------------------------------------------------------------------------------

    def step(self, stmt: Stmt, facts: Facts[F]) -> Facts[F]:
        """The facts after a statement that is no control flow."""
        raise NotImplementedError

    def branch(self, stmt: If, facts: Facts[F], then: Facts[F] | None, orelse: Facts[F] | None) -> Facts[F] | None:
        """The facts after an `if`, from those before it and those at the ends of its branches."""
        return self.join(then, orelse)

    def bind(self, stmt: For, facts: Facts[F]) -> Facts[F]:
        """The facts after a loop variable took another value."""
        return facts

    def leave(self, body: tuple[Stmt, ...], facts: Facts[F]) -> Facts[F]:
        """The facts after a block, whose locals end."""
        return facts

    # ---- the walk ----------------------------------------------------------------------------------------------------

    def run(self) -> Iterable[Diagnostic]:
        self.block(self.kernel.body, frozenset())
        return self.faults.values()

    def report(self, code: str, message: str, node: Node, *notes: Note, help: str | None = None) -> None:
        key = (code, node.span.start, message)
        self.faults.setdefault(key, Diagnostic(code, message, node.span, notes, help))

    def join(self, a: Facts[F] | None, b: Facts[F] | None) -> Facts[F] | None:
        if a is None or b is None:
            return b if a is None else a
        return a & b if self.must else a | b

    def block(self, body: tuple[Stmt, ...], facts: Facts[F] | None) -> Facts[F] | None:
        for stmt in body:
            if facts is None:
                return None
            facts = self._statement(stmt, facts)
        return None if facts is None else self.leave(body, facts)

    def _statement(self, stmt: Stmt, facts: Facts[F]) -> Facts[F] | None:
        match stmt:
            case If(_, then, orelse):
                return self.branch(stmt, facts, self.block(then, facts), self.block(orelse, facts))
            case For():
                return self._for(stmt, facts)
            case Loop(body):
                return self._loop(body, facts)
            case Break():
                self._breaks[-1].append(facts)
                return None
            case _:
                return self.step(stmt, facts)

    def _for(self, stmt: For, facts: Facts[F]) -> Facts[F] | None:
        steps = self._constant_range(stmt.start, stmt.stop)
        if steps is not None:
            return self._unroll(stmt, steps, facts)
        self._breaks.append([])
        end: Facts[F] | None = facts
        while True:
            again = self.block(stmt.body, self.bind(stmt, end)) if end is not None else None
            new = self.join(end, again)
            if new == end:
                break
            end = new
        return self._with_breaks(end)

    def _unroll(self, stmt: For, steps: range, facts: Facts[F]) -> Facts[F] | None:
        self._breaks.append([])
        end: Facts[F] | None = facts
        for value in steps:
            if end is not None:
                self.unrolled[stmt.var] = value
                end = self.block(stmt.body, self.bind(stmt, end))
        self.unrolled.pop(stmt.var, None)
        return self._with_breaks(end)

    def _loop(self, body: tuple[Stmt, ...], facts: Facts[F]) -> Facts[F] | None:
        self._breaks.append([])
        head = facts
        while True:
            new = self.join(head, self.block(body, head))
            if new is None or new == head:
                break
            head = new
        return self._with_breaks(None)

    def _with_breaks(self, end: Facts[F] | None) -> Facts[F] | None:
        """The facts after a loop: those where it ends by itself, if it does, joined with those at its breaks."""
        for other in self._breaks.pop():
            end = self.join(end, other)
        return end

    def _constant_range(self, start: Expr, stop: Expr) -> range | None:
        steps = constant_range(self.kernel, start, stop)
        return steps if steps is not None and len(steps) <= MAX_UNROLL else None

    def value(self, expr: Expr) -> int | None:
        """An integer that is known here: of constants and unrolled loop variables."""
        return known_int(expr, self.kernel.constant_values | self.unrolled)
