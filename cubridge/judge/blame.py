"""Where a wrong result begins: a row of a kernel, region by region, against the fp64 values of a spec."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.operands import Value
from cubridge.engine.dense import SpecValues, spec_values
from cubridge.engine.values.engine import run_values
from cubridge.engine.values.launch import Launch, host_names, host_value
from cubridge.engine.values.machine import Team, ValueMachine
from cubridge.engine.values.tiles import TeamTile
from cubridge.ir.nodes import Kernel, RegionCall, Scalar
from cubridge.ir.spec import AttentionSpec

TOLERANCE = 2.0**-10
"""Relative difference between a score in fp32 and in fp64 that no kernel's arithmetic explains."""


@dataclass(frozen=True, slots=True)
class Record:
    """The scores of the row in one key tile, [columns], after a call of `region`."""

    region: str
    kv_start: int
    scores: Tensor


@dataclass(slots=True)
class RowWatch:
    """Records what the regions make of the scores of one row."""

    row: tuple[int, int, int]  # batch, query head, query row
    records: list[Record] = field(default_factory=list)

    def start(self) -> None:
        """Records stay: a row lies in one block, which starts anew only with nothing recorded, or records the same again."""

    def see(self, machine: ValueMachine, team: Team, stmt: RegionCall, args: Mapping[str, Value]) -> None:
        tile, scores = args.get("tile"), args.get("s")
        if tile is None or not isinstance(scores, TeamTile):
            return
        blocks, warps, rows, eight, _ = scores.data.shape
        origin = machine.decide_int(machine.compiled.row_origin(team), machine.kernel)
        inside = self.row[2] - origin - np.broadcast_to(np.asarray(tile.q_start), blocks)
        b, h = (np.broadcast_to(np.asarray(x), blocks) for x in (tile.b, tile.h))
        mine = (b == self.row[0]) & (h == self.row[1]) & (inside >= 0) & (inside < warps * rows * eight)
        for block in np.flatnonzero(mine):
            start = int(np.broadcast_to(np.asarray(args["kv_start"]), blocks)[block])
            self.records.append(Record(stmt.region, start, scores.flat[block, int(inside[block])].double().clone()))


@dataclass(frozen=True, slots=True)
class Blame:
    """The first region whose result differs; `part` is a region's name, `kv_range`, or `normalizer` for all after the mask."""

    part: str
    message: str


def blame(
    kernel: Kernel,
    spec: AttentionSpec,
    inputs: tuple[Tensor, Tensor, Tensor],
    launch: Launch,
    row: tuple[int, int, int],
) -> Blame:
    """Which part of `kernel` makes row [batch, query head, query row] differ from `spec`, if its result does differ.

    Errors: as `run_values` and `spec_values`."""
    watch = RowWatch(row)
    run_values(kernel, inputs, launch, watch)
    expected = spec_values(spec, *inputs, launch.captures, derivatives=False)
    return next(_differences(watch.records, expected, row, _unit(kernel, launch)), _ELSEWHERE)


_ELSEWHERE = Blame("normalizer", "the scores and the mask of this row are right, so what differs comes after them")


def _unit(kernel: Kernel, launch: Launch) -> float:
    """What a score of the kernel is worth in units of the spec: 1 where the kernel's exponent is already in base 2."""
    for declared in kernel.params:
        if declared.name == "exponent_scale" and isinstance(declared.type, Scalar):
            return host_value(declared, declared.type, host_names(kernel, launch)) / math.log2(math.e)
    return 1.0


def _differences(
    records: list[Record], expected: SpecValues, row: tuple[int, int, int], unit: float
) -> Iterator[Blame]:
    score, visible = expected.score[row], expected.visible[row]
    shift = _row_shift(records, score, unit)
    length = len(score)
    seen = torch.zeros(length, dtype=torch.bool)
    for at, record in enumerate(records):
        stop = min(record.kv_start + len(record.scores), length)
        here = slice(record.kv_start, stop)
        got = record.scores[: max(0, stop - record.kv_start)] * unit
        match record.region:
            case "score":
                yield from _score(record, got - shift, score[here])
                seen[here] = True
                if not any(r.region == "mask" and r.kv_start == record.kv_start for r in records[at:]):
                    yield from _unmasked(record, visible[here], length)
            case "mask":
                yield from _mask(record, visible[here])
            case _:
                pass
    unseen = (visible & ~seen).nonzero()
    if len(unseen):
        yield Blame("kv_range", f"key {int(unseen[0])} is visible, and its key tile is never visited")


def _row_shift(records: list[Record], score: Tensor, unit: float) -> float:
    """By how much all scores of the row differ alike, if they do: a constant that the kernel takes in later is no fault."""
    found = [
        r.scores[: max(0, len(score) - r.kv_start)] * unit - score[r.kv_start : r.kv_start + len(r.scores)]
        for r in records
        if r.region == "score" and r.kv_start < len(score)
    ]
    if not found:
        return 0.0
    differences = torch.cat(found)
    middle = float(differences.median())
    alike = (differences - middle).abs() <= TOLERANCE * (1.0 + score.abs().max())
    return middle if bool(alike.all()) else 0.0


def _score(record: Record, got: Tensor, want: Tensor) -> Iterator[Blame]:
    wrong = ~((got - want).abs() <= TOLERANCE * (1.0 + want.abs()))
    if bool(wrong.any()):
        x = int(wrong.nonzero()[0])
        yield Blame("score", f"key {record.kv_start + x} scores {float(got[x]):.6g}, not {float(want[x]):.6g}")


def _mask(record: Record, visible: Tensor) -> Iterator[Blame]:
    keep = torch.nn.functional.pad(visible, (0, len(record.scores) - len(visible)))
    wrong = (record.scores == -math.inf) == keep
    if bool(wrong.any()):
        x = int(wrong.nonzero()[0])
        state = ("hidden", "visible") if keep[x] else ("visible", "hidden")
        yield Blame("mask", f"key {record.kv_start + x} is {state[0]}, and should be {state[1]}")


def _unmasked(record: Record, visible: Tensor, length: int) -> Iterator[Blame]:
    if not bool(visible.all()) or record.kv_start + len(record.scores) > length:
        yield Blame("kv_range", f"the key tile at {record.kv_start} is walked as full, and holds hidden keys")
