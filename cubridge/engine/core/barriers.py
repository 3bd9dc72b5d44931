"""Barriers: mbarriers, on which copies land, and barriers that count threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from cubridge.engine.core.code import WAIT, Instruction
from cubridge.engine.core.machine import A, Machine
from cubridge.engine.core.operands import Value, fault
from cubridge.engine.core.sync import Landing, MBarrier, Meeting, Policy
from cubridge.ir.diagnostics import Note
from cubridge.ir.hardware import NAMED_BARRIERS
from cubridge.ir.nodes import (
    Barrier,
    BarrierArrive,
    BarrierExpect,
    BarrierInit,
    BarrierWait,
    BlockSync,
    Kernel,
    NamedArrive,
    NamedSync,
    Stmt,
)


class BarrierMachine(Machine[A]):
    """The operations on barriers, and hooks for what an engine makes of them."""

    def __init__(
        self, kernel: Kernel, code: Sequence[Instruction], params: Mapping[str, Value], policy: Policy
    ) -> None:
        super().__init__(kernel, code, params, policy)
        self.barriers: dict[tuple[str, int], MBarrier] = {}
        self.meetings: dict[int, Meeting] = {}
        self.block = Meeting("block_sync")
        self.landings: deque[Landing] = deque()

    # ---- hooks ----

    def new_barrier(self, label: str) -> MBarrier:
        return MBarrier(label)

    def landed(self, landing: Landing) -> None:
        """The bytes of a copy are in shared memory."""

    def phase_done(self, barrier: MBarrier, stmt: Stmt) -> None:
        """A phase of `barrier` has completed by `stmt`."""

    def arrived(self, agent: A, barrier: MBarrier, stmt: Stmt) -> None:
        """`agent` has arrived, and the phase is not counted yet."""

    def met(self, agent: A, meeting: Meeting, stmt: Stmt) -> None:
        """`agent` arrives at `meeting`."""

    def meeting_done(self, meeting: Meeting, stmt: Stmt) -> None:
        """All have arrived."""

    def leaves(self, agent: A, meeting: Meeting, generation: int) -> None:
        """`agent` goes on after round `generation` of `meeting`."""

    def passes(self, agent: A, barrier: MBarrier, stmt: Stmt) -> None:
        """`agent` passes a wait on `barrier`."""

    # ---- mbarriers ----

    def barrier(self, ref: Value, node: Stmt, used: bool = True) -> MBarrier:
        ref = self.checked(ref, Barrier, node)
        if ref.key not in self.barriers:
            slots = self.slot_count(ref.name, Barrier, ref.node)
            label = f"smem.{ref.name}[{ref.slot}]" if slots > 1 else f"smem.{ref.name}"
            self.barriers[ref.key] = self.new_barrier(label)
        barrier = self.barriers[ref.key]
        if used and not barrier.arrivals:
            raise fault("CU257", f"`{barrier.label}` is used before its `barrier_init`", node)
        return barrier

    # ---- copies that land ----

    def land_one(self) -> bool:
        if not self.landings:
            return False
        landing = self.landings.popleft()
        landing.barrier.bytes_due -= landing.bytes
        self.landed(landing)
        self.complete(landing.barrier, landing.stmt)
        return True

    def start_landing(self, landing: Landing) -> None:
        barrier = landing.barrier
        if landing.bytes > barrier.unclaimed:
            notes = (Note("these bytes are expected", barrier.last_expect.span),) if barrier.last_expect else ()
            raise fault(
                "CU259",
                f"this copy brings {landing.bytes} bytes, but `{barrier.label}` expects {barrier.unclaimed} more in this phase",
                landing.stmt, *notes,
            )  # fmt: skip
        barrier.unclaimed -= landing.bytes
        self.landings.append(landing)
        if self.policy.land_at_once:
            while self.land_one():
                pass

    # ---- phases ----

    def barrier_init(self, agent: A, stmt: BarrierInit, barrier: Value, arrivals: Value) -> None:
        barrier = self.barrier(barrier, stmt, used=False)
        arrivals = self.decide_int(arrivals, stmt)
        if barrier.arrivals:
            raise fault("CU257", f"`{barrier.label}` is initialised twice", stmt)
        if agent.active != 1:
            raise fault("CU257", f"{agent.active} threads initialise `{barrier.label}`", stmt)
        if arrivals < 1:
            raise fault("CU257", f"`{barrier.label}` would wait for {arrivals} arrivals", stmt)
        barrier.arrivals = barrier.pending = arrivals

    def barrier_expect(self, agent: A, stmt: BarrierExpect, barrier: Value, bytes: Value) -> None:
        barrier = self.barrier(barrier, stmt)
        expected = self.decide_int(bytes, stmt) * agent.active
        barrier.last_expect = stmt
        barrier.bytes_due += expected
        barrier.unclaimed += expected
        self.arrive(agent, barrier, stmt)

    def barrier_arrive(self, agent: A, stmt: BarrierArrive, barrier: Value) -> None:
        self.arrive(agent, self.barrier(barrier, stmt), stmt)

    def arrive(self, agent: A, barrier: MBarrier, stmt: Stmt) -> None:
        if agent.active > barrier.pending:
            notes = (Note("the arrival before it", barrier.last_arrival.span),) if barrier.last_arrival else ()
            message = (
                f"{agent.active} arrivals at `{barrier.label}`, which lacks {barrier.pending} of {barrier.arrivals}"
            )
            raise fault("CU258", message, stmt, *notes)
        barrier.pending -= agent.active
        barrier.last_arrival = stmt
        self.arrived(agent, barrier, stmt)
        self.complete(barrier, stmt)

    def complete(self, barrier: MBarrier, stmt: Stmt) -> None:
        if barrier.pending == 0 and barrier.bytes_due == 0:
            self.phase_done(barrier, stmt)
            barrier.phase += 1
            barrier.pending = barrier.arrivals

    def barrier_wait(self, agent: A, stmt: BarrierWait, barrier: Value, phase: Value) -> bool | None:
        barrier = self.barrier(barrier, stmt)
        parity = self.decide_int(phase, stmt)
        if parity not in (0, 1):
            raise fault("CU258", f"phase parity {parity}", stmt)
        if barrier.phase & 1 == parity:
            return WAIT
        self.passes(agent, barrier, stmt)
        return None

    # ---- barriers that count threads ----

    def block_sync(self, agent: A, stmt: BlockSync) -> bool | None:
        return self.meet(agent, self.block, sum(a.threads for a in self.agents), stmt)

    def named_sync(self, agent: A, stmt: NamedSync, id: Value, threads: Value) -> bool | None:
        return self.meet(agent, *self.named(stmt, id, threads), stmt)

    def named_arrive(self, agent: A, stmt: NamedArrive, id: Value, threads: Value) -> None:
        self.join(agent, *self.named(stmt, id, threads), stmt, sync=False)

    def named(self, stmt: Stmt, id: Value, threads: Value) -> tuple[Meeting, int]:
        number, threads = (self.decide_int(x, stmt) for x in (id, threads))
        if not 0 < number < NAMED_BARRIERS:
            raise fault("CU261", f"there is no named barrier {number} (0 is the block's)", stmt)
        if threads <= 0 or threads % 32:
            raise fault("CU261", f"a named barrier cannot wait for {threads} threads: whole warps only", stmt)
        return self.meetings.setdefault(number, Meeting(f"named barrier {number}")), threads

    def meet(self, agent: A, meeting: Meeting, threads: int, stmt: Stmt) -> bool | None:
        """Arrive, then wait until the round is complete."""
        if agent.waiting is None:
            agent.waiting = self.join(agent, meeting, threads, stmt, sync=True)
        if meeting.generation == agent.waiting:
            return WAIT
        self.leaves(agent, meeting, agent.waiting)
        agent.waiting = None
        return None

    def join(self, agent: A, meeting: Meeting, threads: int, stmt: Stmt, *, sync: bool) -> int:
        """Arrive; the round that this counts in."""
        self.whole(agent, stmt)
        self.count(agent, meeting, threads, stmt, sync)
        generation = meeting.generation
        self.met(agent, meeting, stmt)
        if meeting.count == threads:
            self.close(meeting, stmt)
        return generation

    def count(self, agent: A, meeting: Meeting, threads: int, stmt: Stmt, sync: bool) -> None:
        others = meeting.syncing if sync else meeting.arriving
        if agent in others:
            raise fault("CU261", f"{agent.label} arrives twice in one round of {meeting.label}", stmt)
        if meeting.count and meeting.threads != threads:
            message = f"{meeting.label} is used for {meeting.threads} threads and for {threads}"
            raise fault("CU261", message, stmt)
        if meeting.count + agent.threads > threads:
            raise fault("CU261", f"more than {threads} threads arrive at {meeting.label}", stmt)
        meeting.threads = threads
        meeting.count += agent.threads
        others.append(agent)

    def close(self, meeting: Meeting, stmt: Stmt) -> None:
        if not meeting.syncing:
            raise fault("CU261", f"a round of {meeting.label} completes and nobody waits in it", stmt)
        self.meeting_done(meeting, stmt)
        meeting.generation += 1
        meeting.count = 0
        meeting.arriving.clear()
        meeting.syncing.clear()
