"""Rules about who does what: named barriers pair, register budgets add up, leaders arrive only after a collective."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from cubridge.ir.body_types import constant_int
from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.hardware import WARPGROUP, launch_registers
from cubridge.ir.nodes import (
    Assign,
    Attr,
    BarrierArrive,
    BlockSync,
    Expr,
    Gemm,
    If,
    Kernel,
    Name,
    NamedArrive,
    NamedSync,
    ReadShared,
    RegistersRelease,
    RegistersTake,
    Stmt,
    WgmmaWait,
)
from cubridge.ir.walk import walk
from cubridge.ir.workers import Placed, Workers
from cubridge.verify.flow import Facts, Flow

# ---- named barriers --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Meeting:
    """What happens at one named barrier."""

    syncs: list[tuple[Placed, frozenset[int]]] = field(default_factory=list)
    arrives: list[tuple[Placed, frozenset[int]]] = field(default_factory=list)


def check_named_barriers(workers: Workers) -> Iterable[Diagnostic]:
    """CU219: at each named barrier the threads that sync and those that arrive make up its count, and somebody can begin."""
    meetings: dict[int, _Meeting] = {}
    for placed in workers.placed:
        if isinstance(placed.stmt, NamedSync | NamedArrive):
            yield from _collect(workers, placed, placed.stmt, meetings)
    for number, meeting in sorted(meetings.items()):
        yield from _check_count(workers.kernel, number, meeting)
    yield from _check_begin(meetings)


def _collect(
    workers: Workers, placed: Placed, stmt: NamedSync | NamedArrive, meetings: dict[int, _Meeting]
) -> Iterator[Diagnostic]:
    ids = workers.values(stmt.id)
    for number in {ids[t] for t in placed.threads}:
        if number is None or not 1 <= number <= 15:
            yield Diagnostic("CU219", "a named barrier is one of 1 to 15, known from the thread alone", stmt.id.span)
            continue
        threads = frozenset(t for t in placed.threads if ids[t] == number)
        meeting = meetings.setdefault(number, _Meeting())
        (meeting.syncs if isinstance(stmt, NamedSync) else meeting.arrives).append((placed, threads))


def _check_count(kernel: Kernel, number: int, meeting: _Meeting) -> Iterator[Diagnostic]:
    """Each turn: those that sync, and those that arrive from the same loop or ahead of it."""
    if not meeting.syncs:
        yield Diagnostic("CU219", f"nobody waits at named barrier {number}", meeting.arrives[0][0].stmt.span)
    for placed, threads in meeting.syncs:
        assert isinstance(placed.stmt, NamedSync)
        count = constant_int(kernel, placed.stmt.threads)
        others = [(p, t) for p, t in meeting.arrives if p.loop is placed.loop]
        total = len(threads) + sum(len(t) for _, t in others)
        notes = tuple(Note("arrivals here", p.stmt.span) for p, _ in others)
        if total != count:
            message = f"named barrier {number} counts {count} threads, and each turn {total} come"
            yield Diagnostic("CU219", message, placed.stmt.span, notes)
        for ahead, ahead_threads in meeting.arrives:
            total = len(threads) + len(ahead_threads)
            if ahead.loop is not placed.loop and total != count:
                message = f"named barrier {number} counts {count} threads, and the first turn {total} come"
                yield Diagnostic("CU219", message, ahead.stmt.span, (Note("this one waits", placed.stmt.span),))
    for placed, _ in meeting.arrives:
        assert isinstance(placed.stmt, NamedArrive)
        for other, _ in meeting.syncs:
            assert isinstance(other.stmt, NamedSync)
            if constant_int(kernel, placed.stmt.threads) != constant_int(kernel, other.stmt.threads):
                note = Note("the other count", other.stmt.span)
                yield Diagnostic("CU219", f"two counts at named barrier {number}", placed.stmt.span, (note,))


def _check_begin(meetings: dict[int, _Meeting]) -> Iterator[Diagnostic]:
    """A barrier can be passed if arrivals ahead of the loop are there, or if what its arrivals wait for can be passed."""
    passable = {n for n, m in meetings.items() if any(a.loop is not s.loop for a, _ in m.arrives for s, _ in m.syncs)}
    while True:
        more = {
            n for n, m in meetings.items() if n not in passable and m.arrives and not _waits_for(m, meetings, passable)
        }
        if not more:
            break
        passable |= more
    for number, meeting in sorted(meetings.items()):
        if number not in passable and meeting.arrives and meeting.syncs:
            help = "let one warpgroup arrive ahead of the loop"
            place = meeting.syncs[0][0].stmt.span
            yield Diagnostic(
                "CU219", f"nobody can be the first at named barrier {number}: all wait in a circle", place, help=help
            )


def _waits_for(meeting: _Meeting, meetings: dict[int, _Meeting], passable: set[int]) -> bool:
    """Do those that arrive here, in the loop, first wait at a barrier that cannot be passed."""
    for arrive, threads in meeting.arrives:
        for number, other in meetings.items():
            for sync, waiting in other.syncs:
                first = sync.stmt.span.start < arrive.stmt.span.start and sync.loop is arrive.loop
                if first and threads & waiting and number not in passable:
                    return True
    return False


# ---- registers -------------------------------------------------------------------------------------------------------


def check_registers(workers: Workers) -> Iterable[Diagnostic]:
    """CU218: warpgroups change their register count whole and once, all or none, and together hold what the launch gave them."""
    kernel = workers.kernel
    changes: dict[int, RegistersRelease | RegistersTake] = {}
    launch = launch_registers(workers.count)
    for placed in workers.placed:
        if not isinstance(placed.stmt, RegistersRelease | RegistersTake):
            continue
        count = constant_int(kernel, placed.stmt.count)
        if (count <= launch) != isinstance(placed.stmt, RegistersRelease):
            message = f"{count} registers are {'less' if count <= launch else 'more'} than the {launch} of the launch"
            yield Diagnostic("CU218", message, placed.stmt.span)
        for group, threads in workers.per_warpgroup(placed.threads).items():
            if threads != WARPGROUP or group in changes or placed.loop is not None:
                yield Diagnostic("CU218", "a warpgroup changes its register count whole, and once", placed.stmt.span)
            changes[group] = placed.stmt
    if not changes:
        return
    last = max(changes.values(), key=lambda s: s.span.start)
    groups = range(workers.count // WARPGROUP)
    missing = [g for g in groups if g not in changes]
    if missing:
        help = "a warpgroup that takes registers waits until others have released them"
        yield Diagnostic(
            "CU218", f"warpgroup {missing[0]} keeps its register count, others change theirs", last.span, help=help
        )
        return
    total = sum(constant_int(kernel, changes[g].count) for g in groups) * WARPGROUP
    if total > launch * workers.count:
        message = f"the warpgroups ask for {total} registers together, and the launch gives {launch * workers.count}"
        notes = tuple(Note("this one too", s.span) for s in dict.fromkeys(changes.values()) if s is not last)
        yield Diagnostic("CU218", message, last.span, notes)


# ---- leaders ---------------------------------------------------------------------------------------------------------


def check_leaders(workers: Workers) -> Iterable[Diagnostic]:
    """CU220: a thread that arrives for its team does so after a collective that follows the team's last read of shared memory."""
    return _Leaders(workers).run()


class _Leaders(Flow[str]):
    """The one fact: everybody of the team has done what comes before."""

    must: ClassVar[bool] = True

    def __init__(self, workers: Workers) -> None:
        super().__init__(workers.kernel)
        self.workers = workers

    def step(self, stmt: Stmt, facts: Facts[str]) -> Facts[str]:
        match stmt:
            case WgmmaWait() | BlockSync() | NamedSync():
                return frozenset({"together"})
            case Gemm() | ReadShared():
                return frozenset()
            case Assign(_, value) if any(isinstance(n, Attr) and n.base == Name("smem") for n in walk(value)):
                return frozenset()
            case _:
                return facts

    def branch(
        self, stmt: If, facts: Facts[str], then: Facts[str] | None, orelse: Facts[str] | None
    ) -> Facts[str] | None:
        arrivals = [s for s in stmt.then if isinstance(s, BarrierArrive)]
        if arrivals and "together" not in facts and self._splits_a_warpgroup(stmt.condition):
            help = "wait for the team first: `wgmma_wait`, `named_sync` or `block_sync`"
            self.report("CU220", "one thread arrives for its team, which may still be reading", arrivals[0], help=help)
        return super().branch(stmt, facts, then, orelse)

    def _splits_a_warpgroup(self, condition: Expr) -> bool:
        values = self.workers.values(condition)
        groups = (set(values[x : x + WARPGROUP]) for x in range(0, self.workers.count, WARPGROUP))
        return any(len(group) > 1 for group in groups)
