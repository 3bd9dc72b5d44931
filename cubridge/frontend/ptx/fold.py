"""The body of a foreign kernel: what the first run's block does, folded to one loop over key tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cubridge.frontend.ptx.geometry import Geometry
from cubridge.frontend.ptx.run import Run
from cubridge.ir.block_events import Act, Turn
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import Span


@dataclass(frozen=True, slots=True)
class CopyTile:
    """A copy of the key tile of step t + `ahead`, left out where there is no such step; None: of the query tile."""

    tensor: str
    ahead: int | None
    asynchronous: bool


@dataclass(frozen=True, slots=True)
class Pass:
    """A commit, wait or barrier. `ahead`: of a commit that is left out with the copy before it, where there is no such step."""

    turn: Turn
    ahead: int | None = None


@dataclass(frozen=True, slots=True)
class Multiply:
    """What is read to be multiplied: "k" with the queries, "v" with the weights."""

    tensor: str


@dataclass(frozen=True, slots=True)
class StoreRows:
    tensor: str


What = CopyTile | Pass | Multiply | StoreRows


@dataclass(frozen=True, slots=True)
class Done:
    what: What
    span: Span


@dataclass(frozen=True, slots=True)
class Body:
    """What is done before the loop over key tiles, in its first iteration, and behind it."""

    before: tuple[Done, ...]
    loop: tuple[Done, ...]
    after: tuple[Done, ...]


def fold(run: Run, geometry: Geometry) -> Body:
    """Errors: CU853 where iterations do different things."""
    parts: dict[int, list[Done]] = {n: [] for n in range(-1, run.loop.count + 1)}
    for at in run.events.order:
        number = run.loop.number_at(at.step)
        parts[number] += _done(run, geometry, number, at.act)
    loops = [parts[t] for t in range(run.loop.count)]
    found = _first_odd(loops[0], loops)
    if found is not None:
        loop = _with_copies(loops[0])
        if loop == loops[0] or _first_odd(loop, loops) is not None:
            message = f"key tile {found} of {run.loop.count} is not treated as the first one is"
            raise CuError(Diagnostic("CU853", message, _odd(loops[found], _expected(loops[0], found, loops), run)))
        loops[0] = loop
    return Body(tuple(parts[-1]), tuple(loops[0]), tuple(parts[run.loop.count]))


def _first_odd(loop: list[Done], loops: Sequence[list[Done]]) -> int | None:
    """The first iteration that is another than `loop`, up to what looks past the last one."""
    for t, found in enumerate(loops):
        if [_plain(d.what) for d in found] != [_plain(what) for what in _expected(loop, t, loops)]:
            return t
    return None


def _expected(loop: list[Done], t: int, loops: Sequence[list[Done]]) -> list[What]:
    return [d.what for d in loop if t + (ahead_of(d.what) or 0) < len(loops)]


def _plain(what: What) -> What:
    return Pass(what.turn) if isinstance(what, Pass) else what


def ahead_of(what: What) -> int | None:
    """How many steps further there must be one for this to be done."""
    return what.ahead if isinstance(what, CopyTile | Pass) else None


def _with_copies(loop: list[Done]) -> list[Done]:
    """Each commit behind a copy that looks ahead is left out with it."""
    found: list[Done] = []
    for done in loop:
        before = ahead_of(found[-1].what) if found else None
        is_commit = isinstance(done.what, Pass) and done.what.turn.kind == "commit"
        found.append(Done(Pass(done.what.turn, before), done.span) if is_commit and before else done)  # pyright: ignore[reportAttributeAccessIssue]
    return found


def _odd(found: list[Done], expected: list[What], run: Run) -> Span:
    for n, done in enumerate(found):
        if n >= len(expected) or done.what != expected[n]:
            return done.span
    return found[-1].span if found else run.loop.span


def _done(run: Run, geometry: Geometry, number: int, act: Act | Turn) -> Iterator[Done]:
    if isinstance(act, Turn):
        yield Done(Pass(Turn(act.kind, act.count)), act.span)
        return
    tensor = act.tile.tensor
    match act.kind:
        case "store":
            yield Done(StoreRows(tensor), act.span)
        case "read":
            if tensor != "q":
                yield Done(Multiply(tensor), act.span)
        case _:
            yield Done(CopyTile(tensor, _ahead(run, geometry, number, act), act.kind == "copy_async"), act.span)


def _ahead(run: Run, geometry: Geometry, number: int, act: Act) -> int | None:
    """Of which step a key tile is, counted from this one; from the first before the loop."""
    if act.tile.tensor == "q":
        return None
    rows = [run.slices.numeric(geometry.key_row(t)) for t in range(run.loop.count)]
    if act.tile.row not in rows:
        raise CuError(
            Diagnostic("CU853", f"rows {act.tile.row} of `{act.tile.tensor}` are copied, which no step reads", act.span)
        )
    return rows.index(act.tile.row) - max(number, 0)


def slots_of(run: Run, tensor: str) -> int:
    """How many slots a tensor's tiles take in turn, step t slot t % n. Errors: CU853 where they are taken otherwise."""
    places = [act.place for _, act in run.acts("copy", tensor)]
    distinct = list(dict.fromkeys(places))
    if any(place != distinct[n % len(distinct)] for n, place in enumerate(places)):
        raise CuError(
            Diagnostic("CU853", f"slots of `{tensor}` are not taken in turn", run.acts("copy", tensor)[0][1].span)
        )
    return len(distinct)
