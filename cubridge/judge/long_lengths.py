"""A kernel against a spec at lengths that no run of a check has: no tensors of scores, only numbers at chosen points.

At each size the schedule must give every query tile of every head and batch once, with the key head of the spec. In chosen
query tiles, a few keys at a time go through the kernel's key sequence and regions as if there were no others, and through
the spec; `long_compare` does that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.engine.dense import visible_at
from cubridge.engine.threads import one_thread
from cubridge.engine.values.points import KernelPoints, Visits, WorkTiles
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.nodes import Binary, Name
from cubridge.ir.series import without_series
from cubridge.judge.long_captures import made_up_captures
from cubridge.judge.long_compare import LongComparison, expect
from cubridge.judge.long_faults import assigned, diagnostic, sizes
from cubridge.judge.long_keys import LongKeys, NoValue
from cubridge.judge.long_points import Marks, Numbers, choose_places, long_shapes
from cubridge.judge.long_scores import levels
from cubridge.judge.memory import Memory
from cubridge.verify.ranges import captured_bound

if TYPE_CHECKING:
    from cubridge.ir.nodes import Expr, Kernel
    from cubridge.ir.spec import AttentionSpec, Shape
    from cubridge.judge.long_captures import Captures
    from cubridge.judge.long_points import Places

_LAUNCH: Final = {"SM_COUNT": 132, "L2_BYTES": 1 << 25}
_CODE: Final = ("judge/long_*.py", "judge/bound.py", "engine/**/*.py", "ir/**/*.py", "verify/ranges.py")
_RIGHT: Final = Memory("long_lengths", _CODE, "torch")
"""Kernels that were right, and at how many points."""


@dataclass(frozen=True, slots=True)
class LongTest:
    """`points`: output elements and weights that were compared, up to the first fault."""

    points: int
    fault: Diagnostic | None = None


def check_long_lengths(kernel: Kernel, spec: AttentionSpec) -> int:
    """How many points were compared; of what was right before, without comparing again.
    Errors: CU317 with the first that differs, exit code 3; CU301, CU312, CU313 where the kernel has no value there."""

    def answer() -> list[str]:
        found = run_long_lengths(kernel, spec)
        if found.fault is not None:
            raise CuError(found.fault, exit_code=3)
        return [str(found.points)]

    return int(_RIGHT.remembered((kernel, spec), answer)[0])


def long_fault(kernel: Kernel, spec: AttentionSpec) -> Diagnostic | None:
    """The first fault that long problems show."""
    return run_long_lengths(kernel, spec).fault


def run_long_lengths(kernel: Kernel, spec: AttentionSpec) -> LongTest:
    """All long problems, up to the first fault; of what series stand for, which these comparisons are too close for."""
    with one_thread():
        found = list(_each_size(without_series(kernel), spec))
    return LongTest(sum(f.points for f in found), found[-1].fault if found else None)


def _each_size(kernel: Kernel, spec: AttentionSpec) -> Iterator[LongTest]:
    bounded, numbers, bound = _within_lengths(spec), Numbers.of(spec, kernel), captured_bound(kernel)
    for seed, shape in enumerate(long_shapes(spec, kernel, numbers)):
        captures = made_up_captures(spec, shape, seed, numbers.steps(), bound)
        try:
            found = _at_size(kernel, bounded, numbers, shape, captures, seed)
        except NoValue:
            continue
        except CuError as error:
            first = error.diagnostics[0]
            found = LongTest(0, replace(first, notes=(*first.notes, Note(f"at {sizes(shape)}"))))
        yield found
        if found.fault is not None:
            return


def _within_lengths(spec: AttentionSpec) -> AttentionSpec:
    """`spec` for keys past the end too: none sees them."""
    inside = Binary("<", Name("j"), Name("Lk"))

    def bound(mask: Expr) -> Expr:
        return Binary("&", inside, mask)

    rows = tuple(replace(r, over=bound(r.over)) for r in spec.rows)
    return replace(spec, mask=bound(spec.mask), rows=rows)


def _at_size(
    kernel: Kernel, spec: AttentionSpec, numbers: Numbers, shape: Shape, captures: Captures, seed: int
) -> LongTest:
    """Schedule and key sequence as on the device; then weights by formulas alone, in fp64, and as the device rounds them."""
    random = Random(seed)
    exact, rounded = (KernelPoints(kernel, shape, captures, _LAUNCH, t) for t in (torch.float64, torch.float32))
    work = exact.work_tiles()
    fault = _schedule_fault(exact, work, spec, captures)
    if fault is not None:
        return LongTest(0, fault)
    near = Marks.of(numbers, kernel, shape)
    places = choose_places(shape, rounded.rows, near, random)
    chosen = _find(rounded, work, places)
    visits = rounded.visits(rounded.tiles(chosen, places.i), places.i)
    if bool((visits.times > 1).any()) or bool(visits.outside.any()):
        return LongTest(0, _sequence_fault(rounded, places, visits))
    scores = levels(sorted(numbers.all), random)
    keys = LongKeys(rounded, spec, captures, places, visits, near, scores, random)
    expected = [expect(spec, captures, places, rounded, batch) for batch in keys.batches(at_length=seed == 0)]
    compared = 0
    for points in (exact, rounded):
        comparison = LongComparison(points, spec, places, points.tiles(chosen, places.i))
        fault = next((f for f in map(comparison.fault, expected) if f is not None), None)
        compared += comparison.compared
        if fault is not None:
            return LongTest(compared, fault)
    return LongTest(compared)


# ---- the schedule ----------------------------------------------------------------------------------------------------


def _codes(points: KernelPoints, b: Tensor, h: Tensor, tile: Tensor) -> Tensor:
    return (b * points.shape.Hq + h) * points.query_tiles + tile


def _schedule_fault(
    points: KernelPoints, work: WorkTiles, spec: AttentionSpec, captures: Captures
) -> Diagnostic | None:
    """Every query tile of every head and batch once, and the key head that the spec says."""
    shape, tiles = points.shape, points.query_tiles
    tile = work.q_start // points.rows
    inside = (work.b >= 0) & (work.b < shape.B) & (work.h >= 0) & (work.h < shape.Hq) & (tile >= 0) & (tile < tiles)
    inside &= work.q_start % points.rows == 0
    times = torch.bincount(_codes(points, work.b, work.h, tile)[inside], minlength=shape.B * shape.Hq * tiles)
    missing = (times == 0).nonzero()
    wrong = missing if len(missing) else (times != 1).nonzero()
    schedule = points.kernel.schedule
    if len(wrong):
        code = int(wrong[0])
        b, h, row = code // tiles // shape.Hq, code // tiles % shape.Hq, code % tiles * points.rows
        message = f"the query tile at row i={row} of head h={h}, batch b={b} is produced {int(times[code])} times"
        return diagnostic(f"{message}; {sizes(shape)}", assigned(schedule, _blame_tile(work, shape)))
    if not bool(inside.all()):
        n = int((~inside).nonzero()[0])
        message = f"work tile {n} is no query tile: b={int(work.b[n])}, h={int(work.h[n])}, i={int(work.q_start[n])}"
        return diagnostic(f"{message}; {sizes(shape)}", schedule)
    expected = visible_at(replace(spec, mask=Binary("==", spec.kv_head, Name("$hk"))), {
        **captures, **shape.sizes(), "h": work.h.view(-1, 1, 1, 1), "$hk": work.hk.view(-1, 1, 1, 1),
    }).expand(len(work.h), 1, 1, 1).reshape(-1)  # fmt: skip
    if not bool(expected.all()):
        n = int((~expected).nonzero()[0])
        message = f"head h={int(work.h[n])}, batch b={int(work.b[n])} reads key head {int(work.hk[n])}"
        return diagnostic(f"{message}, and in the reference another; {sizes(shape)}", assigned(schedule, "hk"))
    return None


def _blame_tile(work: WorkTiles, shape: Shape) -> str:
    """The field of `work_tile` that does not take all its values."""
    for name, size in (("b", shape.B), ("h", shape.Hq)):
        if len(torch.unique(getattr(work, name))) != size:
            return name
    return "q_start"


def _find(points: KernelPoints, work: WorkTiles, places: Places) -> WorkTiles:
    """The work tiles of the places."""
    order = torch.empty(len(work.b), dtype=torch.long)
    order[_codes(points, work.b, work.h, work.q_start // points.rows)] = torch.arange(len(work.b))
    at = order[_codes(points, places.b, places.h, places.tile)]
    return WorkTiles(work.b[at], work.h[at], work.hk[at], work.q_start[at])


def _sequence_fault(points: KernelPoints, places: Places, visits: Visits) -> Diagnostic:
    wrong = ((visits.times > 1).any(1) | visits.outside).nonzero()
    n = int(wrong[0])
    what = "visits a key tile before the first one" if bool(visits.outside[n]) else "visits a key tile more than once"
    at = f"b={int(places.b[n])}, h={int(places.h[n])}, i={int(places.tile[n]) * points.rows}"
    return diagnostic(f"the query tile at {at} {what}; {sizes(points.shape)}", points.kernel.region("key_tile"))
