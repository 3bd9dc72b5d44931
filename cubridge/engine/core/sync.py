"""What agents are and what they meet at: mbarriers with phases and bytes, barriers that count threads, copies on their way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from cubridge.engine.core.operands import Lanes, SharedRef, Value
from cubridge.ir.coordinates import of_thread
from cubridge.ir.nodes import Stmt


@dataclass(frozen=True, slots=True)
class Policy:
    """One of the schedules under which a kernel is run: which agent goes first, for how long, and when copies land."""

    descending: bool = False
    quantum: int = 1 << 30
    land_at_once: bool = False


IN_TURN: Final = Policy()
"""Each agent as far as it gets, in their order; copies land when nothing else can go on."""


class Agent:
    """Threads [first, first + threads) stepping together. `waiting`: the generation of the barrier at which it has arrived."""

    __slots__ = (
        "done",
        "first",
        "full",
        "label",
        "loops",
        "machine",
        "mask",
        "masks",
        "names",
        "pc",
        "threads",
        "waiting",
    )

    def __init__(self, machine: Any, label: str, first: int, threads: int) -> None:
        self.machine = machine
        self.label = label
        self.first = first
        self.threads = threads
        self.full = self.mask = (1 << threads) - 1
        self.pc = 0
        self.names: dict[str, Value] = {}
        self.masks: list[tuple[int, int]] = []
        self.loops: list[list[int]] = []
        self.done = False
        self.waiting: int | None = None

    @property
    def active(self) -> int:
        return self.mask.bit_count()


def agent_names(agent: Agent) -> dict[str, Value]:
    """The coordinates of its threads; an agent lies in one warpgroup."""
    return of_thread(agent.first) | {"thread": Lanes(range(agent.first, agent.first + agent.threads))}


class MBarrier:
    """`phase` counts completed phases. A phase completes when `pending` arrivals and `bytes_due` bytes are zero."""

    __slots__ = ("arrivals", "bytes_due", "label", "last_arrival", "last_expect", "pending", "phase", "unclaimed")

    def __init__(self, label: str) -> None:
        self.label = label
        self.arrivals = 0  # 0: not initialised
        self.phase = 0
        self.pending = 0
        self.bytes_due = 0
        self.unclaimed = 0  # expected bytes that no copy has been started for
        self.last_arrival: Stmt | None = None
        self.last_expect: Stmt | None = None

    def lacks(self) -> str:
        parts = [f"{self.pending} of {self.arrivals} arrivals"] if self.pending else []
        if self.bytes_due:
            parts.append(f"{self.bytes_due} bytes")
        return " and ".join(parts) or "a whole phase"


class Meeting:
    """A barrier that counts threads: `block_sync`, or a named barrier."""

    __slots__ = ("arriving", "count", "generation", "label", "syncing", "threads")

    def __init__(self, label: str) -> None:
        self.label = label
        self.threads = 0
        self.count = 0
        self.generation = 0
        self.arriving: list[Agent] = []  # without waiting
        self.syncing: list[Agent] = []


@dataclass(slots=True)
class Landing:
    """A copy on its way to shared memory, which completes on `barrier`."""

    barrier: MBarrier
    phase: int
    bytes: int
    stmt: Stmt
    dst: SharedRef
    data: Value = field(default=None, repr=False)
