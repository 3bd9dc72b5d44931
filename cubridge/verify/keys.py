"""Rule: every role walks the key sequence, or the query sequence, alike, each step once and in order, and so does each tensor that
is copied for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.coordinates import of_thread
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import known_int
from cubridge.ir.families import Family
from cubridge.ir.hardware import WARPGROUP
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Break,
    Call,
    Copy,
    CopyAsync,
    Expr,
    For,
    If,
    Index,
    IntLit,
    Loop,
    Name,
    Node,
    RegionCall,
    Stmt,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.region_types import family_of
from cubridge.ir.walk import rewrite, walk
from cubridge.ir.workers import Workers

TRIP_COUNTS: Final = (0, 1, 2, 3, 5)

MAX_STATEMENTS: Final = 20_000
"""Of one walk; a kernel takes a few hundred."""

_NOT_ALWAYS: Final = ("mask", "row_probs")
"""Regions that are called where a tile is masked, and for each fragment row."""
_ONE_HEAD: Final = {"Hq": 1, "Hk": 1}
"""Sizes of the walk: a query head for each key head."""


def check_keys(workers: Workers) -> Iterable[Diagnostic]:
    """CU217, from walks of one query tile with few key tiles; CU267 where one does not end."""
    try:
        yield from _check_keys(workers)
    except CuError as error:
        yield from error.diagnostics


def _check_keys(workers: Workers) -> Iterator[Diagnostic]:
    kernel = workers.kernel
    if not family_of(kernel).walk:
        return
    for thread in range(0, workers.count, WARPGROUP if kernel.team == "warpgroup" else workers.count):
        for count in TRIP_COUNTS:
            visitor = _Walk(workers, thread, count)
            visitor.block(kernel.body)
            faults = list(_compare(visitor, count))
            if faults:
                yield from faults
                break


def _compare(visitor: _Walk, count: int) -> Iterator[Diagnostic]:
    for what, visits in visitor.visits.items():
        steps = [step for step, _ in visits]
        if steps != list(range(count)):
            shown = "unknown" if None in steps else ", ".join(map(str, steps)) or "no"
            message = f"{what} walks the steps {shown} of a {visitor.family.walk[0].replace('_', ' ')} of {count}"
            late = next((stmt for at, (step, stmt) in enumerate(visits) if step != at), visits[-1][1])
            yield Diagnostic("CU217", message, late.span)


@dataclass(slots=True)
class _Walk:
    """What one thread visits in one query tile with `count` key tiles."""

    workers: Workers
    thread: int
    count: int
    names: dict[str, Expr] = field(default_factory=dict)
    visits: dict[str, list[tuple[int | None, Stmt]]] = field(default_factory=dict)
    loops: list[tuple[For, int]] = field(default_factory=list)
    statements: int = 0

    @property
    def family(self) -> Family:
        return family_of(self.workers.kernel)

    @property
    def steps(self) -> dict[str, int]:
        """Regions that are called once for each step, and the argument that says which."""
        start = print_expr(self.family.column_origin)
        regions = {
            name: args for name, args in self.family.regions.items() if start in args and name not in _NOT_ALWAYS
        }
        return {name: args.index(start) for name, args in regions.items()}

    def block(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self._count()
            self._statement(stmt)

    def _count(self) -> None:
        self.statements += 1
        if self.statements > MAX_STATEMENTS and self.loops:
            longest, _ = max(self.loops, key=lambda loop: loop[1])
            what = self.family.walk[2].replace("_", " ")
            message = f"the loop takes more than {MAX_STATEMENTS} statements where there are {self.count} {what}s"
            raise CuError(Diagnostic("CU267", message, longest.span, help="let it end after a few steps"))

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case If(condition, then, orelse):
                # What cannot be told is taken, except a way out.
                value = self._value(condition)
                taken = not any(isinstance(s, Break) for s in then) if value is None else bool(value)
                self.block(then if taken else orelse)
            case For(var, start, stop, body):
                first, last = self._value(start), self._value(stop)
                self.loops.append((stmt, 0))
                for taken, step in enumerate(range(first or 0, first or 0 if last is None else last)):
                    self.loops[-1] = (stmt, taken)
                    self._count()
                    self.names[var] = IntLit(step)
                    self.block(body)
                self.loops.pop()
            case Loop(body):
                self.block(body)
            case Assign(Name(name), value):
                self.names[name] = self._known(value)
            case CopyAsync(_, Index(Attr(_, name)), row) | Copy(_, Index(Attr(_, name)), row):
                self._visit(f"the copy of `p.{name}`", row, stmt)
            case RegionCall(region, args) if region in self.steps:
                self._visit(f"`{region}`", args[self.steps[region]], stmt)
            case _:
                pass

    def _visit(self, what: str, row: Expr, stmt: Stmt) -> None:
        for node in walk(self._known(row)):
            if isinstance(node, Call) and node.fn == self.family.walk[2]:
                self.visits.setdefault(what, []).append((self._value(node.args[1]), stmt))

    def _known(self, expr: Expr) -> Expr:
        """`expr` with the names put in that have a value here."""

        def change(node: Node) -> Node:
            match node:
                case Name(name) if name in self.names:
                    return self.names[name]
                case Call(name) if name == self.family.walk[1]:
                    return IntLit(self.count)
                case _:
                    return node

        return rewrite(expr, change)

    def _value(self, expr: Expr) -> int | None:
        names = self.workers.kernel.constant_values | of_thread(self.thread) | _ONE_HEAD
        return known_int(self._known(expr), names)
