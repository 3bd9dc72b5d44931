"""What the rows of a foreign kernel have in common: a few of them are read over key tiles, the last first, and must agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cubridge.frontend.ptx.carried import cut
from cubridge.frontend.ptx.finish import Stored, finish_formula, stored_rows
from cubridge.frontend.ptx.formula import Formula, ordered
from cubridge.frontend.ptx.geometry import Geometry
from cubridge.frontend.ptx.masks import Masked, Placed, score_and_mask
from cubridge.frontend.ptx.row import MAXIMUM, NEW_MAXIMUM, Ends, Lane, Link, RowReader, RowStep, Sample
from cubridge.frontend.ptx.run import Run
from cubridge.frontend.ptx.slices import Slices
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Binary, Call, Expr, Name, Unary
from cubridge.ir.walk import rewrite

_ROWS: Final = (0, 5, 9, -4)
"""Of the rows of a tile that lie inside: in one fragment and another, of the first warp and the last."""


@dataclass(frozen=True, slots=True)
class Rows:
    """`step`: a key tile that goes on from others; `scores`: what scores become, and where; `cast`: what weights are rounded to."""

    step: RowStep
    scores: Masked
    output: Expr
    lse: Expr | None


@dataclass(frozen=True, slots=True)
class _Read:
    """Of one row of a run: what it does with key tiles that lie inside, by their steps, and what it ends with."""

    run: Run
    steps: dict[int, RowStep]
    output: Expr
    lse: Expr | None


def read_rows(runs: Sequence[Run], geometry: Geometry) -> Rows:
    """`runs`: the longest first; besides it, the first that begins with a whole key tile. Errors: CU854."""
    run = runs[0]
    start = next((r for r in runs if r.loop.count > 1 and 0 in _inside(r)), None)
    if start is None or not any(_inside(run)):
        message = "no block that is followed begins with a whole key tile and has another"
        raise CuError(Diagnostic("CU854", message, run.loop.span))
    found = _read_run(run) + ([] if start is run else _read_run(start))
    step = _agreed(found)
    samples = [
        (t, _placed(r.run, geometry, t, sample)) for r in found for t, s in r.steps.items() for sample in s.samples
    ]
    lse = next((r.lse for r in found if r.lse is not None), None)
    if lse is None and run.acts("store", "lse"):
        message = "no row that is followed shows all that a log-sum-exp is made of"
        raise CuError(Diagnostic("CU854", message, run.loop.span))
    return Rows(step, score_and_mask(samples), found[0].output, lse)


def _inside(run: Run) -> list[int]:
    """The steps whose key tiles end inside the length."""
    return [t for t, (_, act) in enumerate(run.acts("read", "k")) if act.tile.kept == act.tile.rows]


def _agreed(found: Sequence[_Read]) -> RowStep:
    """A key tile that goes on from others, one with a mask if there is one. Errors: CU854 where rows, or key tiles, are treated in
    several ways."""
    general = [s for r in found for s in r.steps.values() if s.scale is not None]
    first = next((s for s in general if s.is_masked), general[0])
    for read in found:
        for step in read.steps.values():
            span = step.spans["weight"]
            if not _alike(read.output, found[0].output) or not _treated_alike(step, first):
                raise CuError(Diagnostic("CU854", "rows of one kernel are computed in several ways", span))
            if read.lse is not None and found[0].lse is not None and not _alike(read.lse, found[0].lse):
                raise CuError(Diagnostic("CU854", "rows of one kernel have log-sum-exps of several forms", span))
            if step.weight.holes or (step.scale is not None and step.scale.holes):
                raise CuError(Diagnostic("CU854", "a weight depends on its place and not on its score alone", span))
    return first


def _treated_alike(step: RowStep, first: RowStep) -> bool:
    """A key tile without a mask need not ask whether its maximum is -inf."""
    pairs: list[tuple[Expr, Expr, Expr]] = [(step.weight.expr, first.weight.expr, MAXIMUM)]
    if step.scale is not None and first.scale is not None:
        pairs.append((step.scale.expr, first.scale.expr, NEW_MAXIMUM))
    is_plain = first.is_masked and not step.is_masked
    return step.cast == first.cast and all(
        _alike(_of_finite(one, top), _of_finite(other, top)) if is_plain else _alike(one, other)
        for one, other, top in pairs
    )


def _of_finite(expr: Expr, top: Expr) -> Expr:
    """What it is where the maximum is not -inf."""

    def change(node: object) -> object:
        match node:
            case Call("where", (Binary("==", tested, Unary("-", Name("inf"))), _, otherwise)) if tested == top:
                return otherwise
            case _:
                return node

    return rewrite(expr, change)  # pyright: ignore[reportArgumentType, reportReturnType]


def _alike(one: Expr, other: Expr) -> bool:
    return ordered(one) == ordered(other)


def _read_run(run: Run) -> list[_Read]:
    """Slices are shared by the rows."""
    ends = cut(run, run.loop.count)
    tile = run.acts("copy", "q")[0][1].tile
    rows = {tile.row + (n if n >= 0 else tile.kept + n) for n in _ROWS if n < tile.kept and tile.kept + n >= 0}
    stored = [row for row in stored_rows(ends, run.layout, rows) if row.is_whole]
    if not stored:
        raise CuError(Diagnostic("CU854", "no row that is followed shows all that it is computed by", run.loop.span))
    cuts = [cut(run, t) for t in range(run.loop.count)]
    return [_read_row(run, ends, cuts, row) for row in stored]


def _read_row(run: Run, after: Slices, cuts: Sequence[Slices], stored: Stored) -> _Read:
    outputs = stored.outputs()
    ends = Ends(outputs, stored.shared(), None)
    steps: dict[int, RowStep] = {}
    inside, last = _inside(run), None
    for t, at_its_end, reader, link in _links(run, cuts, stored, ends):
        last = last or link
        if t in inside:
            steps[t] = reader.read(at_its_end, link)
    assert last is not None
    forms = [finish_formula(after, v, outputs[c], last).expr for c, v in stored.columns.items()]
    if len(set(map(ordered, forms))) != 1:
        raise CuError(Diagnostic("CU854", "columns of the output are finished in several ways", run.loop.span))
    lse = None if stored.lse is None else finish_formula(after, stored.lse, None, last).expr
    return _Read(run, steps, forms[0], lse)


def _links(run: Run, cuts: Sequence[Slices], stored: Stored, ends: Ends) -> Iterator[tuple[int, Ends, RowReader, Link]]:
    """From the last key tile to the first, of which nothing is read where it ends past the length."""
    lane = Lane(stored.warp, stored.lane, stored.row)
    for t in range(run.loop.count - 1, -1, -1):
        if t == 0 and 0 not in _inside(run):
            return
        reader = RowReader(cuts[t], run.layout, lane, is_first=t == 0)
        link = reader.link(ends)
        yield t, ends, reader, link
        if link.before is not None:
            ends = link.before


def _placed(run: Run, geometry: Geometry, t: int, sample: Sample) -> Placed:
    """With row and key by the formulas of the tiles that they lie in."""
    start, key = geometry.work.row, geometry.key_row(t)
    i = start + (sample.i - run.slices.numeric(start))
    holes = tuple(replace(h, difference=geometry.rounding.down(h.difference)) for h in sample.score.holes)
    return Placed(Formula(sample.score.expr, holes), i, key + (sample.j - run.slices.numeric(key)))
