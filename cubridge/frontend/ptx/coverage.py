"""What no run showed: branches that went one way alone, whatever the block and shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cubridge.frontend.ptx.floats import is_float
from cubridge.frontend.ptx.run import Run
from cubridge.frontend.ptx.slices import Slices
from cubridge.frontend.ptx.values import Value
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.source import Span
from cubridge.ir.spec import Remark
from cubridge.ir.trace import Operation


def uncovered(runs: Sequence[Run]) -> tuple[Remark, ...]:
    """Each line with a branch of which one way was never taken, but for those that the thread's number alone decides."""
    ways: dict[int, set[bool]] = defaultdict(set)
    asked: dict[int, tuple[Slices, int, int]] = {}
    for run in runs:
        for index, step in enumerate(run.trace.steps):
            operation = run.trace.code[step.at]
            if operation.target < 0 or operation.guard is None:
                continue
            if step.taken:
                ways[step.at].add(True)
            if step.taken != step.mask:
                ways[step.at].add(False)
            asked.setdefault(step.at, (run.slices, index, (step.mask & -step.mask).bit_length() - 1))
    code = runs[0].trace.code
    joined = {at for run in runs for at in run.slices.reach.joined}
    found: dict[Span, Remark] = {}
    for at, seen in sorted(ways.items()):
        if len(seen) == 1 and at not in joined and not _is_of_thread(code[at], *asked[at]):
            way = "taken" if seen == {True} else "left out"
            found.setdefault(code[at].span, Remark(f"not covered: a branch here was {way} in every run", code[at].span))
    return tuple(found.values()) + tuple(_conditional(code))


def _conditional(code: Sequence[Operation]) -> Iterator[Remark]:
    """Integers, loads and stores under a condition of their own: a run shows what those that ran do."""
    spans = {o.span: o for o in code if o.guard is not None and o.target < 0 and not is_float(o.name)}
    for span in spans:
        yield Remark("not covered: an instruction here has a condition, and is read as where it holds", span)


def _is_of_thread(operation: Operation, slices: Slices, index: int, lane: int) -> bool:
    assert operation.guard is not None
    value = slices.register(index, operation.guard, lane, slices.reach.trace.steps[index].warp)
    return _is_number(value)


def _is_number(value: Value) -> bool:
    if isinstance(value, Poly):
        return value.as_int() is not None
    return value.op in ("compare", "and", "or", "not", "truth") and all(map(_is_number, value.args))
