"""Region calls, casts and stores in the order engine: which step of its life a tile takes, and whether it may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from cubridge.engine.core.operands import GlobalRef, Value, fault
from cubridge.engine.order.memory import Content, Slot
from cubridge.engine.order.tiles import RowTile, Scores, WarpTile, as_rows, as_tile
from cubridge.engine.order.work import Work
from cubridge.ir.diagnostics import Note
from cubridge.ir.nodes import REGIONS, Gemm, RegionCall, Stmt

if TYPE_CHECKING:
    from cubridge.engine.order.machine import OrderMachine, Warp

Step: TypeAlias = "Callable[[OrderMachine, Warp, tuple[Value, ...], RegionCall], None]"


def region_step(machine: OrderMachine, warp: Warp, args: tuple[Value, ...], stmt: RegionCall) -> None:
    """Take the step that a call of a region stands for."""
    step = _STEPS.get(stmt.region)
    if step is None or len(args) != len(REGIONS[stmt.region]):
        raise fault("CU301", f"`{stmt.region}` is not called so in a kernel body", stmt)
    step(machine, warp, args, stmt)


def _elementwise(machine: OrderMachine, warp: Warp, args: tuple[Value, ...], stmt: RegionCall) -> None:
    """`score` and `mask`."""
    scores = _scores(machine, warp, args[0], args[1], args[2], stmt, write=True)
    scores.step(stmt.region, () if stmt.region == "score" else ("score",), stmt)
    for late in ("row_update", *(("mask",) if stmt.region == "score" else ())):
        if late in scores.steps:
            raise fault("CU263", f"`{stmt.region}` runs after `{late}`", stmt, Note("here", scores.steps[late].span))


def _row_init(machine: OrderMachine, warp: Warp, args: tuple[Value, ...], stmt: RegionCall) -> None:
    row, work = as_rows(args[0], stmt), _work(args[1], stmt)
    if row.started is not None and all(row.started != done for done, _ in warp.finished):
        raise fault("CU263", "`row_init` runs again before the rows are finalized", stmt)
    row.begin(work)


def _row_update(machine: OrderMachine, warp: Warp, args: tuple[Value, ...], stmt: RegionCall) -> None:
    scores = _scores(machine, warp, args[0], args[2], args[3], stmt, write=False)
    row = _row(args[1], args[3], stmt)
    masked = machine.masked(scores.keys)
    scores.step("row_update", ("score", "mask") if masked else ("score",), stmt)
    row.scores, row.update = scores, stmt
    row.seen.append(scores.keys)
    for tile in warp.outputs:
        if tile.added:
            _not_owed_a_rescale(tile, stmt)
            tile.rescale_for = stmt


def _row_probs(machine: OrderMachine, warp: Warp, args: tuple[Value, ...], stmt: RegionCall) -> None:
    scores = _scores(machine, warp, args[0], args[3], args[4], stmt, write=True)
    row = _row(args[1], args[4], stmt)
    r, rows = machine.decide_int(args[2], stmt), machine.fragment_rows
    if row.scores is not scores:
        raise fault(
            "CU263",
            "`row_probs` runs on a score tile that `row_update` has not taken in",
            stmt,
            Note("the tile", scores.stmt.span),
        )
    if not 0 <= r < rows:
        raise fault("CU263", f"there is no fragment row {r} of {rows}", stmt)
    if scores.rows >> r & 1:
        raise fault("CU263", f"`row_probs` runs twice on fragment row {r} of one score tile", stmt)
    scores.rows |= 1 << r


def _row_rescale(machine: OrderMachine, warp: Warp, args: tuple[Value, ...], stmt: RegionCall) -> None:
    tile = local_tile(warp, args[0], stmt, read=True, write=True)
    row = _row(args[1], args[2], stmt)
    if row.update is None:
        raise fault("CU255", "`row_rescale` runs before any `row_update`", stmt)
    if tile.added and tile.rescale_for is None:
        raise fault(
            "CU263", f"`{tile.name}` is rescaled twice for one `row_update`", stmt, Note("that one", row.update.span)
        )
    tile.rescale_for = None
    tile.history.append(("rescale", len(row.seen)))


def _row_finalize(machine: OrderMachine, warp: Warp, args: tuple[Value, ...], stmt: RegionCall) -> None:
    out = local_tile(warp, args[0], stmt, read=True, write=True)
    lse = local_tile(warp, args[1], stmt, read=False, write=True)
    row, work = _row(args[2], args[3], stmt), _work(args[3], stmt)
    _not_owed_a_rescale(out, stmt)
    if out.finished is not None:
        raise fault("CU263", f"`{out.name}` is finalized twice", stmt)
    count = machine.keys(work).count
    for what, contents in (("`row_update` has taken in", row.seen), ("the output has accumulated", out.added)):
        steps = machine.key_steps(work, contents)
        if sorted(steps) != list(range(count)):
            raise fault("CU264", f"{what} the key tiles of steps {steps}; the sequence has {count}", stmt)
    out.finished = lse.finished = work
    out.history.append(("finalize", len(row.seen)))
    warp.finished.append((work, stmt))


_STEPS: Final[Mapping[str, Step]] = {
    "score": _elementwise,
    "mask": _elementwise,
    "row_init": _row_init,
    "row_update": _row_update,
    "row_probs": _row_probs,
    "row_rescale": _row_rescale,
    "row_finalize": _row_finalize,
}


def cast_step(machine: OrderMachine, warp: Warp, dst: WarpTile, src: WarpTile, stmt: Stmt) -> None:
    """A score tile, whose weights are made, becomes probabilities."""
    scores = src.scores
    if scores is None:
        raise fault("CU263", f"`{src.name}` holds no scores", stmt)
    scores.step("cast", ("row_update",), stmt)
    missing = [r for r in range(machine.fragment_rows) if not scores.rows >> r & 1]
    if missing:
        raise fault(
            "CU263",
            f"the cast comes before `row_probs` of fragment row {missing[0]}",
            stmt,
            Note("the tile", scores.stmt.span),
        )
    if dst.scores is not None and dst.used is None:
        raise fault("CU263", f"`{dst.name}` is overwritten before a gemm has used it", stmt)
    dst.scores, dst.used = scores, None


def scores_step(warp: Warp, dst: WarpTile, queries: Content, keys: Content, stmt: Stmt) -> None:
    """A gemm of two shared tiles makes scores."""
    if dst.scores is not None and "cast" not in dst.scores.steps:
        raise fault(
            "CU263",
            f"`{dst.name}` is overwritten before its scores are cast",
            stmt,
            Note("those scores", dst.scores.stmt.span),
        )
    dst.scores = Scores(queries, keys, stmt)
    warp.scores.append(dst.scores)


def output_step(dst: WarpTile, probs: WarpTile, values: Content, stmt: Gemm) -> None:
    """A gemm of probabilities and a shared tile adds to the output."""
    scores = probs.scores
    if scores is None or "cast" not in scores.steps:
        raise fault("CU263", f"`{probs.name}` holds no probabilities", stmt)
    if probs.used is not None:
        raise fault("CU263", f"`{probs.name}` is used twice", stmt, Note("first here", probs.used.span))
    if stmt.transposed:
        raise fault("CU263", "the output is made by `o += gemm(probs, v)`", stmt)
    if (values.view, values.row) != (scores.keys.view, scores.keys.row) or values.param == scores.keys.param:
        message = f"these are the weights of {scores.keys}, and the operand holds {values}"
        raise fault("CU264", message, stmt, Note("the scores", scores.stmt.span))
    _not_owed_a_rescale(dst, stmt)
    if not stmt.accumulate:
        dst.added.clear()
    dst.added.append(values)
    dst.history.append(("gemm", scores.queries, scores.keys, values))
    probs.used = stmt


def store_step(machine: OrderMachine, warp: Warp, ref: GlobalRef, row: Value, src: WarpTile, stmt: Stmt) -> None:
    work = _finished(src, stmt)
    if (ref.indices, row) != ((work.b, work.h), work.q_start):
        raise fault("CU264", f"`{src.name}` is stored elsewhere than at its batch, head and query rows", stmt)
    _stored(warp, work, ref.name, stmt)


def staged_output(machine: OrderMachine, warp: Warp, src: WarpTile, slot: Slot, rows: int, stmt: Stmt) -> Content:
    """What a slot holds once a finished output is written to it: the rows of its team, where they go."""
    work = _finished(src, stmt)
    return Content(slot.label, (work.b, work.h), work.q_start + machine.row_origin(warp), rows)


def stored_async_step(
    machine: OrderMachine, ref: GlobalRef, row: Value, content: Content, slot: Slot, stmt: Stmt
) -> None:
    """A slot with finished rows goes to global memory, for all warps that wrote it."""
    work = next((w for w in machine.works if (w.b, w.h) == content.view), None)
    if work is None or content.param != slot.label:
        raise fault("CU263", f"`{slot.label}` holds no finished output", stmt)
    if (ref.indices, row) != (content.view, content.row):
        raise fault("CU264", f"`{slot.label}` is stored elsewhere than at its batch, head and query rows", stmt)
    for warp in slot.parts:
        _stored(machine.agents[warp], work, ref.name, stmt)


def _finished(src: WarpTile, stmt: Stmt) -> Work:
    if src.finished is None:
        raise fault("CU263", f"`{src.name}` is stored before `row_finalize`", stmt)
    return src.finished


def _stored(warp: Warp, work: Work, name: str, stmt: Stmt) -> None:
    key = (work, name)
    if key in warp.stored:
        note = Note("first here", warp.stored[key].span)
        raise fault("CU263", f"`{name}` is stored twice for one work tile", stmt, note)
    warp.stored[key] = stmt


def _not_owed_a_rescale(tile: WarpTile, stmt: Stmt) -> None:
    if tile.rescale_for is not None:
        raise fault(
            "CU263",
            f"`{tile.name}` is not rescaled for the last `row_update`",
            stmt,
            Note("that one", tile.rescale_for.span),
        )


def local_tile(warp: Warp, value: Value, stmt: Stmt, *, read: bool, write: bool) -> WarpTile:
    """A register tile, accessed by an instruction that is no wgmma."""
    tile = as_tile(value, stmt)
    tile.access(warp.waited, stmt, read=read, write=write)
    tile.touch(warp.fences, stmt)
    return tile


def _work(value: Value, stmt: Stmt) -> Work:
    if not isinstance(value, Work):
        raise fault("CU301", "this argument is not a work tile", stmt)
    return value


def _row(value: Value, work: Value, stmt: Stmt) -> RowTile:
    row = as_rows(value, stmt)
    row.needs_start(stmt)
    if row.started != work:
        raise fault("CU264", "the row state is another work tile's", stmt)
    return row


def _scores(
    machine: OrderMachine, warp: Warp, value: Value, kv_start: Value, work: Value, stmt: Stmt, *, write: bool
) -> Scores:
    """The scores of a tile argument, which must be those of the work tile and of the key tile that the call names."""
    tile = local_tile(warp, value, stmt, read=True, write=write)
    scores, here = tile.scores, _work(work, stmt)
    if scores is None:
        raise fault("CU263", f"`{tile.name}` holds no scores", stmt)
    queries, keys = scores.queries, scores.keys
    note = Note("the gemm", scores.stmt.span)
    if (queries.view, queries.row) != ((here.b, here.h), here.q_start + machine.row_origin(warp)):
        raise fault("CU264", f"these scores are of {queries}, not of this work tile's query rows", stmt, note)
    if keys.view != (here.b, here.hk) or keys.param == queries.param:
        raise fault("CU264", f"these scores are of {keys}, not of this work tile's keys", stmt, note)
    if keys.row != kv_start:
        steps = ", ".join(map(str, machine.key_steps(here, [keys])))
        message = f"these are the scores of step {steps} of the key sequence, and the call says another first key"
        raise fault("CU264", message, stmt, note)
    return scores
