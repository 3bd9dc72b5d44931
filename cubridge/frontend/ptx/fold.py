"""The body of a foreign kernel: what the first run's block does, folded to one loop over key tiles."""

from __future__ import annotations

from collections.abc import Iterator
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
    """A commit, wait or barrier."""

    turn: Turn


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
    count = run.loop.count
    loop = parts[0]
    for t in range(count):
        expected = [
            d.what
            for d in loop
            if not (isinstance(d.what, CopyTile) and d.what.ahead is not None and t + d.what.ahead >= count)
        ]
        if [d.what for d in parts[t]] != expected:
            raise CuError(
                Diagnostic(
                    "CU853",
                    f"key tile {t} of {count} is not treated as the first one is",
                    _odd(parts[t], expected, run),
                )
            )
    return Body(tuple(parts[-1]), tuple(loop), tuple(parts[count]))


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
