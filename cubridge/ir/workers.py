"""Which threads of a block run which statement, as far as conditions on thread coordinates tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cubridge.ir.body_types import constant_int, constant_range
from cubridge.ir.coordinates import of_thread
from cubridge.ir.evaluate import known_int
from cubridge.ir.hardware import WARPGROUP
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    For,
    If,
    IntLit,
    Kernel,
    Loop,
    Name,
    RegisterTile,
    Stmt,
)
from cubridge.ir.walk import free_names, rewrite, substitute, walk

Threads = frozenset[int]


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement, the threads that may run it, the loop around it, and the values of counted loop variables around it."""

    stmt: Stmt
    threads: Threads
    loop: Stmt | None
    ranges: Mapping[str, range]


class Workers:
    """The statements of a kernel body in the order of the text, each with its threads."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.count = constant_int(kernel, kernel.threads)
        self.everyone: Threads = frozenset(range(self.count))
        self._constants = kernel.constant_values
        self._definitions = _single_definitions(kernel)
        self._rings = {Attr(Name(ring), "slot"): range(size) for ring, size in ring_sizes(kernel).items()}
        self._values: dict[Expr, tuple[int | None, ...]] = {}
        self._stepped: dict[tuple[Expr, tuple[tuple[str, range], ...]], tuple[Expr, ...]] = {}
        self.placed = tuple(self._place(kernel.body, self.everyone, None, {}))

    def values(self, expr: Expr) -> tuple[int | None, ...]:
        """The value of an integer or truth for each thread; None where it depends on more than the thread."""
        if expr not in self._values:
            self._values[expr] = self._evaluate(expr)
        return self._values[expr]

    def per_warpgroup(self, threads: Threads) -> dict[int, int]:
        """How many of `threads` are in each warpgroup."""
        counts: dict[int, int] = {}
        for thread in threads:
            counts[thread // WARPGROUP] = counts.get(thread // WARPGROUP, 0) + 1
        return counts

    def slots(self, index: Expr, placed: Placed, thread: int, count: int) -> frozenset[int]:
        """The slots, of `count`, that `index` may mean for a thread, at any step of counted loops and of rings."""
        values = {self.values(expr)[thread] for expr in self._at_steps(index, placed.ranges)}
        return frozenset(v for v in values if v is not None) if None not in values else frozenset(range(count))

    def _at_steps(self, index: Expr, ranges: Mapping[str, range]) -> tuple[Expr, ...]:
        key = (index, tuple(ranges.items()))
        if key not in self._stepped:
            meant = [self._inlined(index)]
            steps = {Name(var): known for var, known in ranges.items()} | self._rings
            for place in steps.keys() & set(walk(meant[0])):
                meant = [_with(expr, place, step) for expr in meant for step in steps[place]]
            self._stepped[key] = tuple(meant)
        return self._stepped[key]

    def _evaluate(self, expr: Expr) -> tuple[int | None, ...]:
        expr = self._inlined(expr)
        if "thread" in free_names(expr):
            return tuple(self._value(expr, thread) for thread in range(self.count))
        groups = [self._value(expr, first) for first in range(0, self.count, WARPGROUP)]
        return tuple(groups[thread // WARPGROUP] for thread in range(self.count))

    def _value(self, expr: Expr, thread: int) -> int | None:
        """None where it is not known; a conjunction is false where one side is."""
        match expr:
            case Binary("&", left, right) if 0 in (self._value(left, thread), self._value(right, thread)):
                return 0
            case _:
                return known_int(expr, self._constants | of_thread(thread))

    def _inlined(self, expr: Expr) -> Expr:
        """`expr` in terms of thread coordinates, as far as its locals have one definition each."""
        for _ in range(8):
            known = {n: self._definitions[n] for n in free_names(expr) if n in self._definitions}
            if not known:
                break
            expr = substitute(expr, known)
        return expr

    def _place(
        self, body: tuple[Stmt, ...], threads: Threads, loop: Stmt | None, ranges: Mapping[str, range]
    ) -> Iterator[Placed]:
        for stmt in body:
            yield Placed(stmt, threads, loop, ranges)
            match stmt:
                case If(condition, then, orelse):
                    values = self.values(condition)
                    yield from self._place(then, frozenset(t for t in threads if values[t] != 0), loop, ranges)
                    yield from self._place(orelse, frozenset(t for t in threads if not values[t]), loop, ranges)
                case For(var, start, stop, inner):
                    known = constant_range(self.kernel, start, stop)
                    inner_ranges = ranges if known is None else {**ranges, var: known}
                    yield from self._place(inner, threads, stmt, inner_ranges)
                case Loop(inner):
                    yield from self._place(inner, threads, stmt, ranges)
                case _:
                    pass


def _single_definitions(kernel: Kernel) -> dict[str, Expr]:
    """Locals that are assigned in one place, with their values."""
    found: dict[str, list[Expr | None]] = {}
    for stmt in (n for s in kernel.body for n in walk(s)):
        match stmt:
            case Assign(Name(name), value):
                found.setdefault(name, []).append(value)
            case For(var):
                found.setdefault(var, []).append(None)
            case RegisterTile(name):
                found.setdefault(name, []).append(None)
            case _:
                pass
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0] is not None}


def ring_sizes(kernel: Kernel) -> dict[str, int]:
    """The slots that each ring goes through; rings of one name that differ are left out."""
    sizes: dict[str, set[Expr]] = {}
    for stmt in (n for s in kernel.body for n in walk(s)):
        match stmt:
            case Assign(Name(name), Call("Ring", (size,))):
                sizes.setdefault(name, set()).add(size)
            case _:
                pass
    return {name: constant_int(kernel, *found) for name, found in sizes.items() if len(found) == 1}


def _with(expr: Expr, place: Expr, step: int) -> Expr:
    return rewrite(expr, lambda node: IntLit(step) if node == place else node)


def takes_several(kernel: Kernel) -> bool:
    """True where a block loops over work tiles, false where each block has one."""
    return any(isinstance(node, Loop) for node in walk(kernel))
