"""The machine of the order engine: warps with vector clocks over slots, barriers, copy groups and gemm groups. No tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cubridge.engine.core.barriers import BarrierMachine
from cubridge.engine.core.code import WAIT, Instruction
from cubridge.engine.core.expressions import compile_expr
from cubridge.engine.core.operands import Value, fault
from cubridge.engine.core.sync import Agent, MBarrier, Meeting, Policy, agent_names
from cubridge.engine.order.clock import Access, Clock, Components, join
from cubridge.engine.order.memory import Content, SharedScalar, Slot
from cubridge.engine.order.tiles import Scores, WarpTile
from cubridge.engine.order.work import Keys, KeyWork, Scenario, Work, named
from cubridge.ir.coordinates import of_block
from cubridge.ir.diagnostics import CuError, Note
from cubridge.ir.evaluate import apply, evaluate_number
from cubridge.ir.hardware import WARP, WARPGROUP, launch_registers
from cubridge.ir.nodes import (
    Barrier,
    BarrierInit,
    BarrierInitFence,
    Counters,
    Expr,
    FinishCounters,
    Global,
    Kernel,
    Node,
    RegistersRelease,
    RegistersTake,
    Scalar,
    SharedValue,
    Stmt,
)
from cubridge.ir.region_types import family_of


class Warp(Agent):
    """A warp, with what it knows and what it has in flight."""

    __slots__ = (
        "clock", "closed", "committed", "fences", "finished", "histories", "index", "issued", "open_copies", "open_gemms",
        "open_reductions", "outputs", "real_copies", "reduced", "registers", "scores", "shown", "steps", "stored", "waited",
        "waited_copies", "waited_reductions", "warpgroup",
    )  # fmt: skip

    def __init__(self, machine: OrderMachine, index: int, clock: Clock) -> None:
        super().__init__(machine, f"warp {index}", index * WARP, WARP)  # pyright: ignore[reportArgumentType]
        self.index = index
        self.warpgroup = index * WARP // WARPGROUP
        self.clock = clock
        self.open_copies: list[Stmt] = []
        self.closed = 0  # cp.async groups
        self.waited_copies = 0
        self.real_copies: dict[int, Stmt] = {}  # group -> a copy in it
        self.open_reductions: list[Stmt] = []
        self.reduced: list[Stmt] = []  # the last of each bulk group
        self.waited_reductions = 0
        self.steps: list[tuple[object, ...]] = []  # of a backward kernel: what it did to data, with what
        self.shown = 0  # its writes of shared memory up to this time are fenced for the async proxy
        self.open_gemms: list[Stmt] = []
        self.issued = 0  # entries of the warpgroup's log
        self.committed = 0  # wgmma groups
        self.waited = 0
        self.fences = 0
        self.registers = 0
        self.outputs: list[WarpTile] = []  # alive
        self.histories: list[list[tuple[object, ...]]] = []  # of all output tiles there were
        self.scores: list[Scores] = []
        self.finished: list[tuple[Work, Stmt]] = []
        self.stored: dict[tuple[Work, str], Stmt] = {}


class OrderBarrier(MBarrier):
    """An mbarrier with the clocks of its arrivals. `passed`: per warp the last phase that it saw completed, and when."""

    __slots__ = ("clock", "component", "done", "fenced", "init", "passed")

    def __init__(self, label: str, component: int, zero: Clock) -> None:
        super().__init__(label)
        self.component = component
        self.clock = list(zero)
        self.done = list(zero)
        self.init: Access | None = None
        self.fenced = False
        self.passed: dict[int, tuple[int, int, Stmt]] = {}


@dataclass(slots=True)
class GemmLog:
    """What the warps of a warpgroup have issued, which must be the same for all, and the control clocks of each group."""

    entries: list[tuple[Stmt, tuple[Value, ...]]] = field(default_factory=list)
    control: dict[int, Clock] = field(default_factory=dict)


class OrderMachine(BarrierMachine[Warp]):
    """One scenario of a kernel under one schedule. `run`, then `check_end`."""

    max_steps: ClassVar[int] = 100_000

    def __init__(
        self, kernel: Kernel, code: Sequence[Instruction], scenario: Scenario, sizes: Mapping[str, Value]
    ) -> None:
        policy = Policy(scenario.descending, 1 if scenario.one_step else 1 << 30, scenario.land_at_once)
        super().__init__(kernel, code, {}, policy)
        self.scenario = scenario
        self.sizes = sizes
        threads = int(evaluate_number(kernel.threads, sizes))  # pyright: ignore[reportArgumentType]
        slots = sum(self.size(f.type.slots) for f in kernel.shared if isinstance(f.type, Barrier))
        self.components = Components(threads // WARP, -(-threads // WARPGROUP), slots)
        self.agents = [self.new_warp(x) for x in range(threads // WARP)]
        self.slots: dict[tuple[str, int], Slot] = {}
        self.scalars: dict[str, SharedScalar] = {}
        self.logs: dict[int, GemmLog] = {}
        self.meeting_clocks: dict[Meeting, Clock] = {}
        self.meetings_done: dict[tuple[Meeting, int], Clock] = {}
        self.family = family_of(kernel)
        self.reductions: dict[tuple[Value, ...], Stmt] = {}  # what has been added to
        self.origin = compile_expr(kernel.row_origin)
        self.values: dict[str, Value] = {}
        self.turns: dict[str, list[Work]] = {}
        self.draws = 0
        self.copied: set[str] = set()  # parameters that copies have read
        self.finish: Stmt | None = None
        self.pool = 0
        for warp in self.agents:
            warp.registers = launch_registers(threads)
        count = max(1, len(scenario.counts))
        self.works = [Work(scenario.work(turn)) for turn in range(count)]
        self.sequences = {w: Keys(w, n) for w, n in zip(self.works, scenario.counts, strict=False)}

    def new_warp(self, index: int) -> Warp:
        clock = self.components.zero()
        clock[self.components.control(index)] = clock[self.components.memory(index)] = 1
        warp = Warp(self, index, clock)
        warp.names |= self.sizes
        warp.names |= agent_names(warp) | of_block((Scenario.BLOCK, 0, 0), Scenario.BLOCKS)
        return warp

    # ---- values ----

    def param(self, name: str, node: Node) -> Value:
        if name not in self.values:
            self.values[name] = self.param_value(name, node)
        return self.values[name]

    def param_value(self, name: str, node: Node) -> Value:
        kind = next((f.type for f in self.kernel.params if f.name == name), None)
        match kind:
            case Scalar(_, host) if host is not None:
                return evaluate_number(host, self.sizes)
            case Global(optional=optional):
                return True if self.scenario.lse or not optional else None
            case Counters():
                return True if self.scenario.dealt else None
            case None:
                raise fault("CU301", f"there is no parameter `{name}`", node)
            case _:
                return True

    def call(self, agent: Warp, fn: str, args: tuple[Value, ...], node: Expr) -> Value:
        match fn, args:
            case "work_tile", _:
                work = self.take_work(agent, args, node)
                return KeyWork.of(work) if self.family.walks_heads else work
            case "tile_at", coordinates:
                return self.place_work(agent, coordinates, node)
            case _, ((Work() | KeyWork()) as work,) if fn in self.family.walk[:1]:
                return self.keys(work.work if isinstance(work, KeyWork) else work)
            case _, (Keys() as keys,) if fn in self.family.walk[1:2]:
                return keys.count
            case _, (Keys() as keys, int(t)) if fn in self.family.walk[2:]:
                if not 0 <= t < keys.count:
                    what = self.family.walk[2].replace("_", " ")
                    raise fault("CU264", f"step {t} of a sequence of {keys.count} {what}s", node)
                return keys.tile(t) if fn == self.family.walk[2] else keys.masked(t)
            case _:
                return apply(fn, args, node)

    def keys(self, work: Work) -> Keys:
        return self.sequences[work]

    def key_step(self, content: Content) -> tuple[Work, int] | None:
        """Whose key tile this is, and which step; None if it is no key tile."""
        for work, keys in self.sequences.items():
            for t in range(keys.count):
                if content.row == keys.tile(t) * content.rows:
                    return work, t
        return None

    def masked(self, content: Content) -> bool:
        step = self.key_step(content)
        return step is None or self.sequences[step[0]].masked(step[1])

    def key_steps(self, work: Work, contents: Sequence[Content]) -> list[int]:
        """The steps of a work tile that these contents are; -1 for what is none of its key tiles."""
        found = [self.key_step(c) for c in contents]
        return [step[1] if step is not None and step[0] == work else -1 for step in found]

    def row_origin(self, agent: Warp) -> Value:
        return self.origin(agent)

    # ---- work ----

    def take_work(self, agent: Warp, args: tuple[Value, ...], node: Expr) -> Work:
        due = self.due_work(agent)
        if due is None or args not in ((), (due.index,)):
            raise self.not_its_work(agent, f"work tile {args[0] if args else 0}", due, node)
        self.turns[agent.label].append(due)
        return due

    def place_work(self, agent: Warp, coordinates: tuple[Value, ...], node: Expr) -> Work:
        """The work tile of coordinates that another worker took them from."""
        due = self.due_work(agent)
        if due is None or coordinates != (due.b, due.h, due.hk, due.q_start):
            raise self.not_its_work(agent, f"a work tile at {', '.join(map(named, coordinates))}", due, node)
        self.turns[agent.label].append(due)
        return due

    def due_work(self, agent: Warp) -> Work | None:
        taken = self.turns.setdefault(agent.label, [])
        return self.works[len(taken)] if len(taken) < len(self.scenario.counts) else None

    def not_its_work(self, agent: Warp, what: str, due: Work | None, node: Expr) -> CuError:
        message = f"{agent.label} takes {what} at its turn {len(self.turns[agent.label])}, which is not its"
        return fault("CU266", message, node, help=None if due is None else f"work tile {due.index} is next")

    def atomic_add(self, agent: Warp, name: str, index: Value, amount: Value, node: Expr) -> Value:
        if self.param(name, node) is None:
            raise fault("CU266", f"`{name}` is absent in this launch", node)
        if (index, amount, agent.active) != (0, 1, 1):
            raise fault("CU266", "work is drawn by one thread adding 1 to counter 0", node)
        if self.finish is not None:
            raise fault("CU266", "work is drawn from counters that are finished", node, Note("here", self.finish.span))
        draw = self.draws
        self.draws += 1
        return self.scenario.ticket(draw) if draw < len(self.works) - 1 else self.scenario.total

    def finish_counters(self, agent: Warp, stmt: FinishCounters, counters: Value) -> None:
        ref, _ = self.global_param(counters, stmt)
        if self.param(ref.name, stmt) is None:
            raise fault("CU266", f"`{ref.name}` is absent in this launch", stmt)
        if self.finish is not None or agent.active != 1:
            notes = (Note("first here", self.finish.span),) if self.finish is not None else ()
            raise fault("CU266", "a block finishes its counters once, by one thread", stmt, *notes)
        self.finish = stmt

    # ---- shared scalars ----

    def scalar(self, name: str, node: Node) -> SharedScalar:
        self.slot_count(name, SharedValue, node)  # pyright: ignore[reportArgumentType]
        return self.scalars.setdefault(name, SharedScalar(f"smem.{name}"))

    def load_shared(self, agent: Warp, name: str, node: Expr) -> Value:
        return self.scalar(name, node).load(self.now(agent, self.here(agent)), agent.clock)

    def store_shared(self, agent: Warp, name: str, value: Value, stmt: Stmt) -> None:
        if agent.active != 1:
            raise fault("CU251", f"{agent.active} threads write `smem.{name}` at once", stmt)
        self.scalar(name, stmt).store(self.now(agent, stmt), agent.clock, value)

    def now(self, agent: Warp, stmt: Stmt) -> Access:
        component = self.components.memory(agent.index)
        return Access(component, agent.clock[component], stmt, agent.label)

    # ---- clocks at barriers ----

    def tick(self, agent: Warp) -> None:
        agent.clock[self.components.control(agent.index)] += 1
        agent.clock[self.components.memory(agent.index)] += 1

    def new_barrier(self, label: str) -> MBarrier:
        return OrderBarrier(label, self.components.barrier(len(self.barriers)), self.components.zero())

    def barrier_init(self, agent: Warp, stmt: BarrierInit, barrier: Value, arrivals: Value) -> None:
        super().barrier_init(agent, stmt, barrier, arrivals)
        barrier = self.barrier(barrier, stmt)
        assert isinstance(barrier, OrderBarrier)
        barrier.init = self.now(agent, stmt)

    def barrier_init_fence(self, agent: Warp, stmt: BarrierInitFence) -> None:
        for barrier in self.barriers.values():
            assert isinstance(barrier, OrderBarrier)
            if barrier.init is not None and barrier.init.component == self.components.memory(agent.index):
                barrier.fenced = True

    def initialised(self, agent: Warp, barrier: MBarrier, stmt: Stmt) -> OrderBarrier:
        assert isinstance(barrier, OrderBarrier)
        if barrier.init is not None and not barrier.init.before(agent.clock):
            note = Note(f"{barrier.init.who} initialises it here", barrier.init.stmt.span)
            raise fault("CU257", f"{agent.label} uses `{barrier.label}`, unordered with its initialisation", stmt, note)
        return barrier

    def arrived(self, agent: Warp, barrier: MBarrier, stmt: Stmt) -> None:
        known = self.initialised(agent, barrier, stmt)
        known.clock = join(known.clock, agent.clock)
        self.tick(agent)

    def phase_done(self, barrier: MBarrier, stmt: Stmt) -> None:
        assert isinstance(barrier, OrderBarrier)
        phase, clock = barrier.phase, barrier.clock
        for warp, (seen, time, wait) in barrier.passed.items():
            if seen == phase - 1 and clock[self.components.control(warp)] < time:
                message = f"phase {phase} of `{barrier.label}` may complete before warp {warp} has seen phase {seen}"
                raise fault("CU258", message, stmt, Note("its wait", wait.span))
        clock[barrier.component] = phase + 1
        barrier.done, barrier.clock = clock, self.components.zero()

    def passes(self, agent: Warp, barrier: MBarrier, stmt: Stmt) -> None:
        known = self.initialised(agent, barrier, stmt)
        seen = barrier.phase - 1
        if agent.clock[known.component] < seen:
            message = f"nothing orders this wait for phase {seen} of `{barrier.label}` after phase {seen - 1}"
            raise fault("CU258", message, stmt, help="it may pass two phases early: wait for every phase in turn")
        agent.clock = join(agent.clock, known.done)
        known.passed[agent.index] = (seen, agent.clock[self.components.control(agent.index)], stmt)

    def met(self, agent: Warp, meeting: Meeting, stmt: Stmt) -> None:
        before = self.meeting_clocks.get(meeting)
        self.meeting_clocks[meeting] = list(agent.clock) if before is None else join(before, agent.clock)
        self.tick(agent)

    def meeting_done(self, meeting: Meeting, stmt: Stmt) -> None:
        self.meetings_done[meeting, meeting.generation] = self.meeting_clocks.pop(meeting)

    def leaves(self, agent: Warp, meeting: Meeting, generation: int) -> None:
        agent.clock = join(agent.clock, self.meetings_done[meeting, generation])

    # ---- register budgets ----

    def registers_release(self, agent: Warp, stmt: RegistersRelease, count: Value) -> None:
        count = self.budget(agent, stmt, count)
        if count >= agent.registers:
            raise fault(
                "CU265",
                f"{agent.label} holds {agent.registers} registers a thread and releases down to {count}",
                stmt,
            )
        self.pool += (agent.registers - count) * WARP
        agent.registers = count

    def registers_take(self, agent: Warp, stmt: RegistersTake, count: Value) -> bool | None:
        count = self.budget(agent, stmt, count)
        if count <= agent.registers:
            raise fault(
                "CU265", f"{agent.label} holds {agent.registers} registers a thread and takes up to {count}", stmt
            )
        if (count - agent.registers) * WARP > self.pool:
            return WAIT
        self.pool -= (count - agent.registers) * WARP
        agent.registers = count
        return None

    def budget(self, agent: Warp, stmt: Stmt, count: Value) -> int:
        self.whole(agent, stmt)
        count = self.decide_int(count, stmt)
        if count % 8 or not 24 <= count <= 256:
            raise fault("CU265", f"{count} registers: a multiple of 8 from 24 to 256 is needed", stmt)
        return count
