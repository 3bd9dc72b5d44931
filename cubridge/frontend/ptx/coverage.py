"""What no run showed: branches and choices that went one way alone, whatever the block and shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cubridge.frontend.ptx.floats import is_float
from cubridge.frontend.ptx.run import Run
from cubridge.frontend.ptx.slices import Slices
from cubridge.frontend.ptx.values import Value
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.source import Span
from cubridge.ir.spec import Remark
from cubridge.ir.trace import Operation, Register, Step


def uncovered(runs: Sequence[Run]) -> tuple[Remark, ...]:
    """Each line with a branch, or a choice between integers, of which one way was never taken; but for those that the thread's
    number alone decides, and those whose other way a formula has."""
    seen: dict[int, _Asked] = {}
    for run in runs:
        for index, step in enumerate(run.trace.steps):
            condition = _condition(run.trace.code[step.at])
            if condition is not None:
                asked = seen.setdefault(step.at, _Asked(run.slices, index, condition))
                asked.ways |= _ways(run.slices, index, step, condition)
    code = runs[0].trace.code
    joined = {at for run in runs for at in run.slices.reach.joined}
    found: dict[Span, Remark] = {}
    for at, asked in sorted(seen.items()):
        if len(asked.ways) == 1 and at not in joined and not asked.is_of_thread:
            found.setdefault(code[at].span, Remark(f"not covered: {_told(code[at], asked)}", code[at].span))
    return (*found.values(), *_conditional(code), *_whole_tiles(runs))


def _whole_tiles(runs: Sequence[Run]) -> Iterator[Remark]:
    """Ends of lengths inside of a tile that no run has."""
    for tensor, what in (("q", "query"), ("k", "key")):
        acts = [act for run in runs for _, act in run.acts("copy", tensor)]
        if acts and all(act.tile.kept == act.tile.rows for act in acts):
            yield Remark(f"not covered: no run has a {what} tile that ends past its length", acts[0].span)


@dataclass(slots=True)
class _Asked:
    """A condition as it was first asked for, and which ways were taken."""

    slices: Slices
    step: int
    condition: Register
    ways: set[bool] = field(default_factory=set[bool])

    @property
    def is_of_thread(self) -> bool:
        step = self.slices.reach.trace.steps[self.step]
        return _is_number(self.slices.register(self.step, self.condition, _first_lane(step), step.warp))


def _condition(operation: Operation) -> Register | None:
    """Of a branch, or of a choice between integers, which slices follow as the run chose."""
    if operation.target >= 0:
        return operation.guard
    chosen = operation.sources[2] if operation.name.startswith("selp.") and not is_float(operation.name) else None
    return chosen if isinstance(chosen, Register) else None


def _ways(slices: Slices, index: int, step: Step, condition: Register) -> set[bool]:
    if slices.reach.trace.code[step.at].target >= 0:
        return ({True} if step.taken else set()) | ({False} if step.taken != step.mask else set())
    found: set[bool] = set()
    for lane in (_first_lane(step), step.mask.bit_length() - 1):
        made = slices.reach.register(step.warp, condition.key, lane, index)
        if made is not None:
            truth = slices.reach.trace.steps[made].results[slices.reach.result_index(made, condition)]
            assert isinstance(truth, int)
            found.add(bool(truth >> lane & 1))
    return found


def _told(operation: Operation, asked: _Asked) -> str:
    (way,) = asked.ways
    if operation.target < 0:
        return "a choice here went one way in every run"
    return f"a branch here was {'taken' if way else 'left out'} in every run"


def _first_lane(step: Step) -> int:
    return (step.mask & -step.mask).bit_length() - 1


def _conditional(code: Sequence[Operation]) -> Iterator[Remark]:
    """Integers, loads and stores under a condition of their own: a run shows what those that ran do."""
    spans = {o.span: o for o in code if o.guard is not None and o.target < 0 and not is_float(o.name)}
    for span in spans:
        yield Remark("not covered: an instruction here has a condition, and is read as where it holds", span)


def _is_number(value: Value) -> bool:
    if isinstance(value, Poly):
        return value.as_int() is not None
    return value.op in ("compare", "and", "or", "not", "truth") and all(map(_is_number, value.args))
