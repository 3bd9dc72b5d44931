"""Rules of the rings: a slot is read after a wait for its copy and filled after a wait for its release, and each wait on a slot is
answered by an arrival. Copies bring the bytes that their barrier expects. cp.async order is the order engine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from cubridge.ir.body_types import shared_slot
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.families import FORWARD
from cubridge.ir.nodes import (
    Assign,
    Attr,
    BarrierArrive,
    BarrierExpect,
    BarrierWait,
    Call,
    CopyAsync,
    Expr,
    For,
    Gemm,
    If,
    IntLit,
    Kernel,
    Name,
    Node,
    RingNext,
    SharedValue,
    Stmt,
    Tile,
)
from cubridge.ir.operands import shared_name, slot_index
from cubridge.ir.printer import print_expr
from cubridge.ir.walk import free_names, rewrite, walk
from cubridge.ir.workers import ring_sizes
from cubridge.verify.flow import Facts, Flow


def check_waits(kernel: Kernel) -> Iterable[Diagnostic]:
    """CU212 for a use that no wait comes before, CU213 for bytes that do not add up, CU215 for a slot never handed on. A backward
    kernel waits for what its next step needs if there is one, which flow without values cannot follow: of it, the bytes alone."""
    yield from _Expects(kernel).run()
    if kernel.family != FORWARD:
        return
    waits = _Waits(kernel, _Rings.of(kernel))
    yield from waits.run()
    yield from _Releases(kernel, waits.handed_by()).run()


def _mentions(expr: Expr, name: str) -> bool:
    return name in free_names(expr)


@dataclass(frozen=True, slots=True)
class _Rings:
    """Which barriers the copies into a shared object signal. `values`: shared scalars. `alternating`: rings of several slots that
    take a step at most once a work tile, so that no tile uses the slot of the one before it."""

    signals: Mapping[str, frozenset[str]]
    values: frozenset[str]
    alternating: frozenset[str]

    @staticmethod
    def of(kernel: Kernel) -> _Rings:
        signals: dict[str, frozenset[str]] = {}
        for node in walk(kernel):
            if isinstance(node, CopyAsync) and node.signal is not None:
                name = shared_name(node.dst)
                signals[name] = signals.get(name, frozenset()) | {shared_name(node.signal)}
        values = frozenset(f.name for f in kernel.shared if isinstance(f.type, SharedValue))
        by_step = {
            n.ring for loop in walk(kernel) if isinstance(loop, For) for n in walk(loop) if isinstance(n, RingNext)
        }
        several = (ring for ring, size in ring_sizes(kernel).items() if size > 1 and Name(ring) not in by_step)
        return _Rings(signals, values, frozenset(several))


@dataclass(frozen=True, slots=True)
class _Waited:
    """A wait on `barrier[slot]` in a phase; `phase` is None once a name stands for the slot, which no ring step ends. `written`:
    the scalars that were written since, each of which the wait lets be written once."""

    barrier: str
    slot: Expr
    phase: Expr | None
    written: frozenset[str] = frozenset()

    def ended_by(self, name: str) -> bool:
        return _mentions(self.slot, name) or (self.phase is not None and _mentions(self.phase, name))


class _Waits(Flow[_Waited]):
    """Facts: waits whose slot is still the one they were for."""

    must: ClassVar[bool] = True

    def __init__(self, kernel: Kernel, rings: _Rings) -> None:
        super().__init__(kernel)
        self.rings = rings
        self.filled: dict[str, set[str]] = {}  # shared object -> barriers that its writers wait on
        self.read: dict[str, set[str]] = {}  # shared object -> barriers that its readers wait on
        self.meanings: dict[str, Expr] = {}  # local -> its last value

    def handed_by(self) -> dict[str, frozenset[str]]:
        """Barrier -> the barriers that answer a wait on it, by an arrival of those who waited."""
        answers: dict[str, set[str]] = {}
        for name, writers in self.filled.items():
            readers = self.read.get(name, set())
            for reader in readers:
                answers.setdefault(reader, set()).update(writers)
            if name in self.rings.values:
                for writer in writers:
                    answers.setdefault(writer, set()).update(readers)
        return {barrier: frozenset(others) for barrier, others in answers.items()}

    def bind(self, stmt: For, facts: Facts[_Waited]) -> Facts[_Waited]:
        return frozenset(f for f in facts if not f.ended_by(stmt.var))

    def step(self, stmt: Stmt, facts: Facts[_Waited]) -> Facts[_Waited]:
        match stmt:
            case BarrierWait(barrier, phase):
                return facts | {_Waited(shared_name(barrier), slot_index(barrier), phase)}
            case RingNext(Name(ring)):
                return frozenset(f for f in facts if not f.ended_by(ring))
            case Gemm(_, a, b):
                for operand in (a, b):
                    self._read(stmt, operand, facts)
                return facts
            case CopyAsync(dst, _, _, signal) if signal is not None:
                return self._fill(stmt, dst, facts)
            case Assign(Name(name), value):
                self.meanings[name] = value
                self._read_values(stmt, value, facts)
                return _renamed(facts, name, value)
            case Assign(target) if shared_name(target) in self.rings.values:
                return self._fill(stmt, target, facts)
            case _:
                return facts

    def _read(self, stmt: Stmt, operand: Expr, facts: Facts[_Waited]) -> None:
        name = shared_name(operand)
        signals = self.rings.signals.get(name)
        if not signals:
            return
        fitting = {f.barrier for f in facts if f.barrier in signals and f.slot == slot_index(operand)}
        if not fitting:
            barriers = " or ".join(f"`{b}`" for b in sorted(signals))
            help = f"wait on {barriers} of this slot, in its current phase"
            self.report(
                "CU212", f"`{print_expr(operand)}` is read, and no wait for its copy comes before", stmt, help=help
            )
        self.read.setdefault(name, set()).update(fitting)

    def _read_values(self, stmt: Stmt, value: Expr, facts: Facts[_Waited]) -> None:
        for node in walk(value):
            if isinstance(node, Attr) and shared_name(node) in self.rings.values:
                waited = {f.barrier for f in facts if f.slot == IntLit(0)}
                if not waited:
                    self.report("CU212", f"`{print_expr(node)}` is read, and no wait for its write comes before", stmt)
                self.read.setdefault(node.name, set()).update(waited)

    def _fill(self, stmt: Stmt, target: Expr, facts: Facts[_Waited]) -> Facts[_Waited]:
        """Writing uses up the waits for this slot to be free; those for a message, for this scalar of it."""
        name = shared_name(target)
        signals = self.rings.signals.get(name, frozenset())
        free = {f for f in facts if f.barrier not in signals and f.slot == slot_index(target) and name not in f.written}
        if not free and not self._freed_by_message(target, facts):
            message = f"`{print_expr(target)}` is written, and no wait for its release comes before"
            self.report("CU212", message, stmt)
        if free:
            self.filled.setdefault(name, set()).update(f.barrier for f in free)
        of_message = free if name in self.rings.values else set[_Waited]()
        return (facts - free) | {replace(f, written=f.written | {name}) for f in of_message}

    def _freed_by_message(self, target: Expr, facts: Facts[_Waited]) -> bool:
        """Who reads the message of one work tile is done with the tile before it. So a slot that comes again two tiles later is
        free once the message between has been read, which is so when the next one is written."""
        slot = slot_index(target)
        meant = self.meanings.get(slot.id, slot) if isinstance(slot, Name) else slot
        rings = {
            n.base.id for n in walk(meant) if isinstance(n, Attr) and isinstance(n.base, Name) and n.name == "slot"
        }
        return bool(rings & self.rings.alternating) and any(f.written for f in facts)


def _renamed(facts: Facts[_Waited], name: str, value: Expr) -> Facts[_Waited]:
    """After `name = value`: what `name` meant is gone, and it now means the slot that `value` says."""
    kept = frozenset(f for f in facts if not f.ended_by(name))
    return kept | {replace(f, slot=Name(name), phase=None) for f in kept if f.slot == value}


@dataclass(frozen=True, slots=True)
class _Expected:
    """`barrier` still expects so many bytes of the phase that `stmt` began."""

    barrier: Expr
    bytes: int
    stmt: BarrierExpect


class _Expects(Flow[_Expected]):
    """Facts: bytes that a barrier was told to expect and that no copy has brought yet."""

    must: ClassVar[bool] = False

    def step(self, stmt: Stmt, facts: Facts[_Expected]) -> Facts[_Expected]:
        match stmt:
            case BarrierExpect(barrier, count):
                amount = self.value(self._with_bytes(count))
                if amount is None:
                    self.report("CU213", "the bytes that this expects are not known before the launch", stmt)
                    return facts
                return self._ended(facts, {f for f in facts if f.barrier == barrier}) | {
                    _Expected(barrier, amount, stmt)
                }
            case CopyAsync(dst, _, _, signal) if signal is not None:
                return self._copied(stmt, dst, signal, facts)
            case RingNext(Name(name)) | Assign(Name(name)):
                return self._ended(facts, {f for f in facts if _mentions(f.barrier, name)})
            case _:
                return facts

    def bind(self, stmt: For, facts: Facts[_Expected]) -> Facts[_Expected]:
        return self._ended(facts, {f for f in facts if _mentions(f.barrier, stmt.var)})

    def leave(self, body: tuple[Stmt, ...], facts: Facts[_Expected]) -> Facts[_Expected]:
        return self._ended(facts, {f for f in facts if f.stmt in body})

    def _copied(self, stmt: CopyAsync, dst: Expr, signal: Expr, facts: Facts[_Expected]) -> Facts[_Expected]:
        kind = next(f.type for f in self.kernel.shared if f.name == shared_name(dst))
        assert isinstance(kind, Tile)
        brought = shared_slot(self.kernel, kind).bytes
        expecting = {f for f in facts if f.barrier == signal}
        if not expecting:
            help = f"`barrier_expect({print_expr(signal)}, {brought})` before the copy"
            self.report("CU213", "the barrier of this copy does not expect its bytes", stmt, help=help)
        for fact in expecting:
            if brought > fact.bytes:
                message = f"this expects {fact.bytes} bytes more, and the copy brings {brought}"
                self.report("CU213", message, fact.stmt)
        rest = {replace(f, bytes=f.bytes - brought) for f in expecting if f.bytes > brought}
        return (facts - expecting) | rest

    def _ended(self, facts: Facts[_Expected], ended: set[_Expected]) -> Facts[_Expected]:
        for fact in ended:
            self.report("CU213", f"this expects {fact.bytes} bytes that no copy brings", fact.stmt)
        return facts - ended

    def _with_bytes(self, expr: Expr) -> Expr:
        def known(node: Node) -> Node:
            match node:
                case Call("bytes", (Attr(_, name),)):
                    kind = next(f.type for f in self.kernel.shared if f.name == name)
                    return IntLit(shared_slot(self.kernel, kind).bytes) if isinstance(kind, Tile) else node
                case _:
                    return node

        return rewrite(expr, known)


@dataclass(frozen=True, slots=True)
class _Owed:
    """Who waited on `waited[slot]` has to arrive on one of `answers` of the same slot."""

    waited: str
    slot: Expr
    answers: frozenset[str]
    stmt: BarrierWait


class _Releases(Flow[_Owed]):
    """Facts: slots that were waited for and not handed on yet."""

    must: ClassVar[bool] = False

    def __init__(self, kernel: Kernel, answers: Mapping[str, frozenset[str]]) -> None:
        super().__init__(kernel)
        self.answers = answers

    def branch(
        self, stmt: If, facts: Facts[_Owed], then: Facts[_Owed] | None, orelse: Facts[_Owed] | None
    ) -> Facts[_Owed] | None:
        """A leader arrives for its team, so that what its branch hands on is handed on."""
        joined = self.join(then, orelse)
        if joined is None or then is None or not any(isinstance(s, BarrierArrive) for s in stmt.then):
            return joined
        return joined - (facts - then)

    def bind(self, stmt: For, facts: Facts[_Owed]) -> Facts[_Owed]:
        return self._ended(facts, stmt.var)

    def step(self, stmt: Stmt, facts: Facts[_Owed]) -> Facts[_Owed]:
        match stmt:
            case BarrierWait(barrier) if shared_name(barrier) in self.answers:
                return self._waits(stmt, barrier, facts)
            case BarrierArrive(barrier):
                name, slot = shared_name(barrier), slot_index(barrier)
                return frozenset(f for f in facts if name not in f.answers or f.slot != slot)
            case Assign(Name(name), value):
                kept = self._ended(facts, name)
                return frozenset(replace(f, slot=Name(name)) if f.slot == value else f for f in kept)
            case RingNext(Name(ring)):
                return self._ended(facts, ring)
            case _:
                return facts

    def _waits(self, stmt: BarrierWait, barrier: Expr, facts: Facts[_Owed]) -> Facts[_Owed]:
        owed = _Owed(shared_name(barrier), slot_index(barrier), self.answers[shared_name(barrier)], stmt)
        self._overdue({f for f in facts if f.waited == owed.waited and f.slot == owed.slot})
        return facts | {owed}

    def _ended(self, facts: Facts[_Owed], name: str) -> Facts[_Owed]:
        lost = {f for f in facts if _mentions(f.slot, name)}
        self._overdue(lost)
        return facts - lost

    def _overdue(self, facts: Iterable[_Owed]) -> None:
        for fact in facts:
            barriers = " or ".join(f"`{b}`" for b in sorted(fact.answers))
            message = f"what this waits for is never handed on: no arrival on {barriers} follows"
            self.report("CU215", message, fact.stmt)
