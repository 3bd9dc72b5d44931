"""The loop over key tiles in a run: its iterations by the steps of each warp, and how often it runs, as a formula."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cubridge.frontend.ptx.slices import Slices
from cubridge.frontend.ptx.values import Node
from cubridge.ir.algebra.normal import floor_div
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import NEGATED
from cubridge.ir.source import Span
from cubridge.ir.trace import Operation, Step, Trace


@dataclass(frozen=True, slots=True)
class KeyLoop:
    """`starts`: by warp, the step at which each iteration begins; `stops`: by warp, the one after the last. `before`: how many of
    them stand in the text before the loop."""

    starts: tuple[tuple[int, ...], ...]
    stops: tuple[int, ...]
    span: Span
    before: int = 0

    @property
    def count(self) -> int:
        return len(self.starts[0])

    def iteration(self, warp: int, number: int) -> range:
        ends = (*self.starts[warp][1:], self.stops[warp])
        return range(self.starts[warp][number], ends[number])

    def number_at(self, step: int) -> int:
        """Which iteration of warp 0 a step falls into; -1 before the loop, `count` behind it."""
        if step >= self.stops[0]:
            return self.count
        return sum(start <= step for start in self.starts[0]) - 1

    def begins(self, number: int) -> tuple[int, ...]:
        """By warp, the step at which an iteration begins, or what follows the last one."""
        return self.stops if number == self.count else tuple(starts[number] for starts in self.starts)


def find_loop(trace: Trace, inside: Sequence[int]) -> KeyLoop | None:
    """The outermost loop around steps `inside`, or None. Errors: CU853 where warps or lanes run it differently."""
    lines = {trace.steps[n].at for n in inside}
    loops = [
        (o.target, at)
        for at, o in enumerate(trace.code)
        if 0 <= o.target <= at
        and any(o.target <= line <= at for line in lines)
        and _is_entered_at(trace.code, o.target, at)
    ]
    if not loops:
        return None
    header, last = min(first for first, _ in loops), max(end for _, end in loops)
    starts: list[list[int]] = [[] for _ in range(trace.warps)]
    stops = [0] * trace.warps
    for index, step in enumerate(trace.steps):
        if header <= step.at <= last:
            stops[step.warp] = index + 1
            if step.at == header:
                starts[step.warp].append(index)
    span = trace.code[last].span
    if not starts[0] and len({len(s) for s in starts}) == 1:
        return None
    if len({len(s) for s in starts}) != 1 or any(not _whole(trace, s) for s in starts):
        raise CuError(Diagnostic("CU853", "the loop over key tiles is not run alike by all warps", span))
    return KeyLoop(tuple(map(tuple, starts)), tuple(stops), span)


def _is_entered_at(code: Sequence[Operation], header: int, latch: int) -> bool:
    """Does a way from the start to the branch back at `latch` pass `header`, so that they are a loop."""
    before: dict[int, list[int]] = defaultdict(list)
    for at, operation in enumerate(code):
        if operation.target >= 0:
            before[operation.target].append(at)
        if operation.guard is not None or (operation.target < 0 and operation.name not in ("exit", "ret")):
            before[at + 1].append(at)
    seen, waiting = {header, latch}, [latch]
    while waiting:
        at = waiting.pop()
        new = [n for n in before[at] if n not in seen] if at != header else []
        seen.update(new)
        waiting += new
    return header == 0 or 0 not in seen


def _whole(trace: Trace, starts: list[int]) -> bool:
    masks = {trace.steps[n].mask for n in starts}
    return len(masks) <= 1


_SMALLEST_RUN: Final = 2
"""Iterations that show by how much a condition moves."""


def count_formula(slices: Slices, loop: KeyLoop) -> Poly:
    """How often the loop runs, from the condition that leaves it. Errors: CU853 where that is no number against a bound that moves
    evenly."""
    index, conditions = _exits(slices, loop)
    differences = [d for _, d in conditions]
    steps = [(b - a).as_int() for a, b in pairwise(differences)]
    span = slices.reach.trace.code[index].span
    if len(differences) < _SMALLEST_RUN or None in steps or len(set(steps)) != 1:
        raise CuError(Diagnostic("CU853", "the condition of the loop over key tiles moves by no fixed number", span))
    step, (op, first) = steps[0] or 0, conditions[0]
    if op in (">", ">="):
        op, first, step = {">": "<", ">=": "<="}[op], -first, -step
    if op == "<=":
        op, first = "<", first - 1
    if op == "!=" and step < 0:
        first, step = -first, -step
    if step <= 0 or op not in ("<", "!=") or (op == "!=" and step != 1):
        raise CuError(Diagnostic("CU853", "the condition of the loop over key tiles has no count", span))
    runs = floor_div(-first + (step - 1), Poly.constant(step))
    in_loop = loop.count - loop.before
    return runs + loop.before + (1 if len(differences) == in_loop else 0)


def _exits(slices: Slices, loop: KeyLoop) -> tuple[int, list[tuple[str, Poly]]]:
    """The branch that leaves, and under which condition it goes on each time: an operator and what is compared with 0."""
    trace = slices.reach.trace
    steps = [n for n in range(loop.starts[0][loop.before], loop.stops[0]) if trace.steps[n].warp == 0]
    last = next(
        n for n in reversed(steps) if trace.code[trace.steps[n].at].target >= 0 and trace.code[trace.steps[n].at].guard
    )
    at = trace.steps[last].at
    found = [_goes_on(slices, n, trace.steps[n], leaving=n == last) for n in steps if trace.steps[n].at == at]
    return at, found


def _goes_on(slices: Slices, index: int, step: Step, leaving: bool) -> tuple[str, Poly]:
    """The condition as it would be where the loop goes on."""
    operation = slices.reach.trace.code[step.at]
    assert operation.guard is not None
    lane = (step.mask & -step.mask).bit_length() - 1
    value = slices.register(index, operation.guard, lane, step.warp)
    if not isinstance(value, Node) or value.op != "compare" or not all(isinstance(a, Poly) for a in value.args):
        raise CuError(Diagnostic("CU853", "the loop over key tiles ends by no comparison of integers", operation.span))
    taken = bool(step.taken)
    goes_on = taken != leaving
    op = str(value.data) if goes_on != operation.guard.negated else NEGATED[str(value.data)]
    left, right = value.args
    assert isinstance(left, Poly) and isinstance(right, Poly)
    return op, left - right
