"""The machine that steps agents through a kernel body: the scheduler, mbarriers, barriers that count threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from cubridge.engine.core.code import Instruction
from cubridge.engine.core.deadlock import deadlock
from cubridge.engine.core.expressions import GlobalRef, Ring, SharedRef, Value, fault
from cubridge.engine.core.sync import Agent, Landing, MBarrier, Meeting, Policy
from cubridge.ir.diagnostics import CuError, Note
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.hardware import NAMED_BARRIERS
from cubridge.ir.nodes import (
    Assign,
    Barrier,
    BarrierArrive,
    BarrierExpect,
    BarrierInit,
    BarrierInitFence,
    BarrierWait,
    BlockSync,
    Cast,
    Commit,
    CopyAsync,
    Expr,
    Field,
    FinishCounters,
    Gemm,
    Kernel,
    NamedArrive,
    NamedSync,
    Node,
    RegionCall,
    RegistersRelease,
    RegistersTake,
    RegisterTile,
    RingNext,
    SharedValue,
    Stmt,
    Store,
    Tile,
    WaitGroup,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    Zero,
)  # fmt: skip

A = TypeVar("A", bound=Agent)


class Machine(Generic[A]):
    """One run of a kernel body. Engines subclass it and give the operations on tiles their meaning."""

    max_steps: ClassVar[int] = 1_000_000
    """Statements after which a kernel is taken not to end."""

    def __init__(
        self, kernel: Kernel, code: Sequence[Instruction], params: Mapping[str, Value], policy: Policy
    ) -> None:
        self.kernel = kernel
        self.code = code
        self.params = params
        self.policy = policy
        self.agents: list[A] = []
        self.shared: Mapping[str, Field] = {f.name: f for f in kernel.shared}
        self.barriers: dict[tuple[str, int], MBarrier] = {}
        self.meetings: dict[int, Meeting] = {}
        self.block = Meeting("block_sync")
        self.landings: deque[Landing] = deque()
        self.steps = 0

    # ---- to be given by an engine ----

    def call(self, agent: A, fn: str, args: tuple[Value, ...], node: Expr) -> Value:
        raise NotImplementedError

    def load_shared(self, agent: A, name: str, node: Expr) -> Value:
        raise NotImplementedError

    def atomic_add(self, agent: A, name: str, index: Value, amount: Value, node: Expr) -> Value:
        raise NotImplementedError

    def row_state(self, agent: A, node: Expr) -> Value:
        raise NotImplementedError

    def element(self, name: str, indices: tuple[Value, ...], node: Expr) -> Value:
        raise fault("CU301", "an element of a captured tensor has no value in a kernel body", node)

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

    def decide(self, value: Value, node: Node) -> bool:
        return bool(value)

    def decide_int(self, value: Value, node: Node) -> int:
        if type(value) is not int:
            raise fault("CU301", "this is not one number for all threads", node)
        return value

    # ---- values ----

    def param(self, name: str, node: Node) -> Value:
        if name not in self.params:
            raise fault("CU301", f"the parameter `{name}` has no value here", node)
        return self.params[name]

    def present(self, name: str, node: Expr) -> bool:
        return self.param(name, node) is not None

    def size(self, expr: Expr | None) -> int:
        """A size of the kernel's declarations: an expression of its constants."""
        if expr is None:
            return 1
        return int(evaluate_number(expr, self.kernel.constant_values))  # pyright: ignore[reportArgumentType]

    def slot_bytes(self, name: str, node: Expr) -> int:
        declared = self.shared.get(name)
        if declared is None or not isinstance(declared.type, Tile):
            raise fault("CU301", f"`{name}` is not a shared tile", node)
        return self.size(declared.type.rows) * self.size(declared.type.cols) * declared.type.dtype.bytes

    def slot_count(self, name: str, kind: type[Tile] | type[Barrier] | type[SharedValue], node: Node) -> int:
        declared = self.shared.get(name)
        if declared is None or not isinstance(declared.type, kind):
            raise fault("CU301", f"`{name}` is not a shared {kind.__name__.lower()}", node)
        return 1 if isinstance(declared.type, SharedValue) else self.size(declared.type.slots)

    def checked(self, ref: Value, kind: type[Tile] | type[Barrier] | type[SharedValue], node: Node) -> SharedRef:
        """An operand that must be a slot of a shared object of this kind."""
        if not isinstance(ref, SharedRef):
            raise fault("CU301", f"this operand is not a shared {kind.__name__.lower()}", node)
        if not 0 <= ref.slot < self.slot_count(ref.name, kind, ref.node):
            raise fault("CU252", f"`smem.{ref.name}` has no slot {ref.slot}", ref.node)
        return ref

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

    def whole(self, agent: A, at: Instruction) -> None:
        if agent.mask != agent.full:
            what = getattr(at.stmt, "op", type(at.stmt).__name__)
            raise fault(
                "CU256", f"{what} is reached by {agent.active} of the {agent.threads} threads of {agent.label}", at.stmt
            )

    # ---- the scheduler ----

    def run(self) -> None:
        order = self.agents[::-1] if self.policy.descending else self.agents
        while not all(agent.done for agent in order):
            moved = [self.advance(agent) for agent in order if not agent.done]
            if not any(moved) and not self.land_one():
                raise CuError(deadlock(self))
        while self.land_one():
            pass

    def advance(self, agent: A) -> bool:
        """Step an agent until it must wait, ends, or has used its quantum; True if it moved."""
        code, end = self.code, len(self.code)
        steps, limit = 0, self.policy.quantum
        while steps < limit:
            if agent.pc >= end:
                agent.done = True
                self.ended(agent)
                return True
            at = code[agent.pc]
            if not at.run(self, agent, at):
                break
            steps += 1
            self.steps += 1
            if self.steps > self.max_steps:
                raise fault("CU267", "the kernel does not come to an end", at.stmt)
        return steps > 0

    def ended(self, agent: A) -> None:
        """`agent` has left the kernel."""

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

    # ---- mbarriers ----

    def barrier_init(self, agent: A, at: Instruction) -> bool:
        barrier = self.barrier(at.operands[0](agent), at.stmt, used=False)
        arrivals = self.decide_int(at.operands[1](agent), at.stmt)
        if barrier.arrivals:
            raise fault("CU257", f"`{barrier.label}` is initialised twice", at.stmt)
        if agent.active != 1:
            raise fault("CU257", f"{agent.active} threads initialise `{barrier.label}`", at.stmt)
        if arrivals < 1:
            raise fault("CU257", f"`{barrier.label}` would wait for {arrivals} arrivals", at.stmt)
        barrier.arrivals = barrier.pending = arrivals
        agent.pc += 1
        return True

    def barrier_expect(self, agent: A, at: Instruction) -> bool:
        barrier = self.barrier(at.operands[0](agent), at.stmt)
        expected = self.decide_int(at.operands[1](agent), at.stmt) * agent.active
        barrier.last_expect = at.stmt
        barrier.bytes_due += expected
        barrier.unclaimed += expected
        self.arrive(agent, barrier, at.stmt)
        agent.pc += 1
        return True

    def barrier_arrive(self, agent: A, at: Instruction) -> bool:
        self.arrive(agent, self.barrier(at.operands[0](agent), at.stmt), at.stmt)
        agent.pc += 1
        return True

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

    def barrier_wait(self, agent: A, at: Instruction) -> bool:
        barrier = self.barrier(at.operands[0](agent), at.stmt)
        parity = self.decide_int(at.operands[1](agent), at.stmt)
        if parity not in (0, 1):
            raise fault("CU258", f"phase parity {parity}", at.stmt)
        if barrier.phase & 1 == parity:
            return False
        self.passes(agent, barrier, at.stmt)
        agent.pc += 1
        return True

    # ---- barriers that count threads ----

    def block_sync(self, agent: A, at: Instruction) -> bool:
        return self.meet(agent, self.block, sum(a.threads for a in self.agents), at, sync=True)

    def named_sync(self, agent: A, at: Instruction) -> bool:
        return self.meet(agent, *self.named(agent, at), at, sync=True)

    def named_arrive(self, agent: A, at: Instruction) -> bool:
        return self.meet(agent, *self.named(agent, at), at, sync=False)

    def named(self, agent: A, at: Instruction) -> tuple[Meeting, int]:
        number, threads = (self.decide_int(x(agent), at.stmt) for x in at.operands)
        if not 0 < number < NAMED_BARRIERS:
            raise fault("CU261", f"there is no named barrier {number} (0 is the block's)", at.stmt)
        if threads <= 0 or threads % 32:
            raise fault("CU261", f"a named barrier cannot wait for {threads} threads: whole warps only", at.stmt)
        return self.meetings.setdefault(number, Meeting(f"named barrier {number}")), threads

    def meet(self, agent: A, meeting: Meeting, threads: int, at: Instruction, *, sync: bool) -> bool:
        if agent.waiting is not None:
            if meeting.generation == agent.waiting:
                return False
            self.leaves(agent, meeting, agent.waiting)
            agent.waiting = None
            agent.pc += 1
            return True
        self.whole(agent, at)
        self.count(agent, meeting, threads, at, sync)
        if sync:
            agent.waiting = meeting.generation
        self.met(agent, meeting, at.stmt)
        if meeting.count == threads:
            self.close(meeting, at)
        if not sync:
            agent.pc += 1
            return True
        return self.meet(agent, meeting, threads, at, sync=True)

    def count(self, agent: A, meeting: Meeting, threads: int, at: Instruction, sync: bool) -> None:
        others = meeting.syncing if sync else meeting.arriving
        if agent in others:
            raise fault("CU261", f"{agent.label} arrives twice in one round of {meeting.label}", at.stmt)
        if meeting.count and meeting.threads != threads:
            message = f"{meeting.label} is used for {meeting.threads} threads and for {threads}"
            raise fault("CU261", message, at.stmt)
        if meeting.count + agent.threads > threads:
            raise fault("CU261", f"more than {threads} threads arrive at {meeting.label}", at.stmt)
        meeting.threads = threads
        meeting.count += agent.threads
        others.append(agent)

    def close(self, meeting: Meeting, at: Instruction) -> None:
        if not meeting.syncing:
            raise fault("CU261", f"a round of {meeting.label} completes and nobody waits in it", at.stmt)
        self.meeting_done(meeting, at.stmt)
        meeting.generation += 1
        meeting.count = 0
        meeting.arriving.clear()
        meeting.syncing.clear()

    # ---- small things alike in all engines ----

    def ring_next(self, agent: A, at: Instruction) -> bool:
        ring = at.operands[0](agent)
        if not isinstance(ring, Ring):
            raise fault("CU301", "this is not a ring", at.stmt)
        ring.next()
        agent.pc += 1
        return True

    def global_param(self, ref: Value, node: Node) -> tuple[GlobalRef, Field]:
        """An operand that must be global memory, and its declaration."""
        if isinstance(ref, GlobalRef):
            for declared in self.kernel.params:
                if declared.name == ref.name:
                    return ref, declared
        raise fault("CU301", "this operand is not global memory", node)


METHODS: Final[Mapping[type[Stmt], str]] = {
    Assign: "assign", RegisterTile: "register_tile", Gemm: "gemm", RegionCall: "region_call", Zero: "zero", Cast: "cast",
    CopyAsync: "copy_async", Store: "store", Commit: "commit", WaitGroup: "wait_group", BlockSync: "block_sync",
    WgmmaFence: "wgmma_fence", WgmmaCommit: "wgmma_commit", WgmmaWait: "wgmma_wait", BarrierInit: "barrier_init",
    BarrierInitFence: "barrier_init_fence", BarrierExpect: "barrier_expect", BarrierArrive: "barrier_arrive",
    BarrierWait: "barrier_wait", NamedSync: "named_sync", NamedArrive: "named_arrive", RingNext: "ring_next",
    RegistersRelease: "registers_release", RegistersTake: "registers_take", FinishCounters: "finish_counters",
}  # fmt: skip
"""The method of an engine that steps each kind of statement."""


def handlers(engine: type[Machine[A]]) -> dict[type[Stmt], Value]:
    return {kind: getattr(engine, method) for kind, method in METHODS.items()}
