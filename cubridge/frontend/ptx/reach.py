"""Which step wrote what a step reads: registers of each warp, and shared memory two bytes at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from cubridge.ir.trace import LANES, Operation, Register, Trace

GRANULE: Final = 2
"""Bytes of shared memory that are told apart: an element of bf16 or fp16."""
SHARED: Final = 1
"""What the highest byte of a generic address says."""
_SPACE_SHIFT: Final = 56
_OFFSET: Final = (1 << _SPACE_SHIFT) - 1

RegisterKey: TypeAlias = tuple[bool, int]


@dataclass(frozen=True, slots=True)
class Written:
    """Granule `part` of what lane `lane` wrote in a step."""

    step: int
    lane: int
    part: int


@dataclass(frozen=True, slots=True)
class Moves:
    """What a memory instruction moves: bytes of one value, and how many."""

    bytes: int
    count: int

    @property
    def total(self) -> int:
        return self.bytes * self.count


def moves_of(name: str) -> Moves:
    """Of a load or store, by its name: `ld.shared.v4.b32`."""
    parts = name.split(".")
    count = next((int(p[1:]) for p in parts if p in ("v2", "v4", "v8")), 1)
    return Moves(int(parts[-1].lstrip("busf")) // 8, count)


def is_shared(name: str, address: int) -> bool:
    """Is an access of this name to shared memory."""
    return (
        "shared" in name.split(".")
        or "shared::cta" in name
        or ("global" not in name and address >> _SPACE_SHIFT == SHARED)
    )


def offset_of(address: int) -> int:
    """A shared address from the start of the block's memory."""
    return address & _OFFSET


class Reach:
    """The index of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.by_register: dict[tuple[int, RegisterKey], list[int]] = defaultdict(list)
        self.memory: dict[int, tuple[list[int], list[Written]]] = {}
        self.branches_around = _branches_around(trace.code)
        self.branches_over: dict[RegisterKey, set[int]] = defaultdict(set)
        """Of a register, the branches that leave out what writes it."""
        for at, branch in self.branches_around.items():
            for result in trace.code[at].results:
                if result is not None:
                    self.branches_over[result.key].add(branch)
        self.branch_steps: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.joined: set[int] = set()
        """Branches both of whose ways a slice has followed."""
        for index, step in enumerate(trace.steps):
            operation = trace.code[step.at]
            if operation.target >= 0:
                self.branch_steps[step.warp, step.at].append(index)
            for result in operation.results:
                if result is not None:
                    self.by_register[step.warp, result.key].append(index)
            if operation.name.startswith(("st.", "cp.async.c")) and not operation.name.startswith("cp.async.commit"):
                self._note(index)

    def _note(self, index: int) -> None:
        step = self.trace.steps[index]
        name = self.trace.code[step.at].name
        total = 16 if name.startswith("cp.") else moves_of(name).total
        if name.startswith("cp."):
            size = self.trace.code[step.at].sources[2]
            total = getattr(size, "bits", 16)
        for lane in lanes_of(step.mask):
            address = int(step.addresses[0][lane])
            if not is_shared(name, address):
                continue
            for part in range(max(1, total // GRANULE)):
                where, what = self.memory.setdefault(offset_of(address) + part * GRANULE, ([], []))
                where.append(index)
                what.append(Written(index, lane, part))

    def register(self, warp: int, key: RegisterKey, lane: int, before: int) -> int | None:
        """The step that gave a lane of a register its value, as a step sees it."""
        found = self.by_register.get((warp, key), ())
        at = bisect_left(found, before) - 1
        while at >= 0:
            if self.trace.steps[found[at]].mask >> lane & 1:
                return found[at]
            at -= 1
        return None

    def last(self, warp: int, branch: int, lane: int, before: int) -> int | None:
        """The step at which a lane last came to a branch."""
        found = self.branch_steps.get((warp, branch), [])
        at = bisect_left(found, before) - 1
        while at >= 0 and not self.trace.steps[found[at]].mask >> lane & 1:
            at -= 1
        return found[at] if at >= 0 else None

    def was_left_out(self, warp: int, key: RegisterKey, lane: int, since: int, before: int) -> int | None:
        """The branch by which a lane passed over what writes a register, between two steps."""
        for branch in self.branches_over.get(key, ()):
            at = self.last(warp, branch, lane, before)
            if at is not None and at > since and self.trace.steps[at].taken >> lane & 1:
                return branch
        return None

    def shared(self, offset: int, before: int) -> Written | None:
        """What wrote a granule of shared memory last."""
        where, what = self.memory.get(offset, ((), ()))
        at = bisect_left(where, before) - 1
        return what[at] if at >= 0 else None

    def result_index(self, step: int, register: Register) -> int:
        results = self.trace.code[self.trace.steps[step].at].results
        return next(n for n, r in enumerate(results) if r is not None and r.key == register.key)


def lanes_of(mask: int) -> list[int]:
    return [lane for lane in range(LANES) if mask >> lane & 1]


def _branches_around(code: Sequence[Operation]) -> dict[int, int]:
    """Of each operation that one branch forward leaves out, alone with others that neither branch nor store: that branch."""
    found: dict[int, int] = {}
    for at, operation in enumerate(code):
        inside = range(at + 1, operation.target)
        if (
            operation.guard is None
            or not inside
            or any(code[n].target >= 0 or code[n].name.startswith("st.") for n in inside)
        ):
            continue
        found |= dict.fromkeys(inside, at)
    return found
