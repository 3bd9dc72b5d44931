"""A kernel against a spec at lengths that no run of a check has: no tensors of scores, only numbers at chosen points.

At each size the schedule must give every query tile of every head and batch once, with the key head of the spec. In chosen
query tiles, a few keys at a time go through the kernel's key sequence and regions as if there were no others, and through
the spec."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.engine.dense import spec_values_at, visible_at
from cubridge.engine.threads import one_thread
from cubridge.engine.values.points import KernelPoints, Keys, Visits, WorkTiles, fp64
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.nodes import Assign, Attr, Binary, FloatLit, Function, Name, Node, Scalar
from cubridge.ir.source import NOWHERE
from cubridge.ir.tile_shape import head_dim
from cubridge.ir.walk import walk
from cubridge.judge.long_points import COLUMNS, choose_keys, choose_places, long_shapes, made_up_captures, marks

if TYPE_CHECKING:
    from cubridge.ir.nodes import Expr, Kernel
    from cubridge.ir.spec import AttentionSpec, Shape
    from cubridge.judge.long_points import Captures, Places

_CODE: Final = "CU317"
_LAUNCH: Final = {"SM_COUNT": 132, "L2_BYTES": 1 << 25}
_TOLERANCE: Final = 1e-5
"""Of a weight, relative to itself, and of the weights of all keys, relative to the largest of a row; both sides are fp64."""
_CONSTANTS: Final = 2.0**-22
"""Relative, of a score: kernels round constants such as log2(e) to fp32."""
_NOTHING: Final = 1e-12
"""A weight that counts as 0: in fp64, forms of one formula differ by so much, such as `1 + erf(x)` and `erfc(-x)`."""
_EDGES: Final = 6
_GROUPS: Final = 3
"""Groups of keys that one row takes in one after the other; a group may come again."""
_SCORE_SIZE: Final = 8.0
_COURSES: Final = ((0, 1), (0, -1), (1, 0), (-1, 0))
"""Scores of groups of keys, in steps: where they start, and how they go on."""
_STEPS: Final = (4, 17)
"""Least and largest step, as powers of 2: from what a lag of the reference lets pass to the largest products of fp16."""
_LARGEST_WEIGHT: Final = 2.0**64
"""Of a weight relative to its row's reference. Sums of 2^21 of them times values of 2^40 are fp32 numbers."""


class _NoValue(Exception):
    """The reference itself has none at a point: it divides by what made-up captures make 0, say. That size shows nothing."""


def check_long_lengths(kernel: Kernel, spec: AttentionSpec) -> None:
    """Errors: CU317 with the first point that differs, exit code 3; CU301, CU312, CU313 where the kernel has no value there."""
    fault = long_fault(kernel, spec)
    if fault is not None:
        raise CuError(fault, exit_code=3)


def long_fault(kernel: Kernel, spec: AttentionSpec) -> Diagnostic | None:
    """The first fault that long problems show."""
    with one_thread():
        return _long_fault(kernel, spec)


def _long_fault(kernel: Kernel, spec: AttentionSpec) -> Diagnostic | None:
    bounded = _within_lengths(spec)
    for seed, shape in enumerate(long_shapes(spec, kernel, head_dim(kernel))):
        captures = made_up_captures(spec, shape, seed)
        try:
            fault = _fault_at(kernel, bounded, shape, captures, Random(seed))
        except _NoValue:
            continue
        except CuError as error:
            first = error.diagnostics[0]
            return replace(first, notes=(*first.notes, Note(f"at {_sizes(shape)}")))
        if fault is not None:
            return fault
    return None


def _within_lengths(spec: AttentionSpec) -> AttentionSpec:
    """`spec` for keys past the end too: none sees them."""
    inside = Binary("<", Name("j"), Name("Lk"))

    def bound(mask: Expr) -> Expr:
        return Binary("&", inside, mask)

    rows = tuple(replace(r, over=bound(r.over)) for r in spec.rows)
    return replace(spec, mask=bound(spec.mask), rows=rows)


def _of_copies(spec: AttentionSpec, copies: int) -> AttentionSpec:
    """`spec` of rows in which each key is there so many times."""

    def times(body: Expr) -> Expr:
        return Binary("*", FloatLit(float(copies)), body)

    rows = tuple(replace(r, body=times(r.body)) if r.kind == "sum" else r for r in spec.rows)
    return replace(spec, weight=times(spec.weight), rows=rows)


def _fault_at(
    kernel: Kernel, spec: AttentionSpec, shape: Shape, captures: Captures, random: Random
) -> Diagnostic | None:
    points = KernelPoints(kernel, shape, captures, _LAUNCH)
    work = points.work_tiles()
    fault = _schedule_fault(points, work, spec, captures)
    if fault is not None:
        return fault
    numbers = marks(spec, kernel, shape)
    places = choose_places(shape, points.rows, numbers, random)
    chosen = _find(points, work, places)
    tile = points.tiles(chosen, places.i)
    visits = points.visits(tile, places.i)
    if bool((visits.times > 1).any()) or bool(visits.outside.any()):
        return _sequence_fault(points, places, visits)
    return _Comparison(points, spec, captures, places, tile, visits, numbers, random).fault()


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
        return _diagnostic(f"{message}; {_sizes(shape)}", _assigned(schedule, _blame_tile(work, shape)))
    if not bool(inside.all()):
        n = int((~inside).nonzero()[0])
        message = f"work tile {n} is no query tile: b={int(work.b[n])}, h={int(work.h[n])}, i={int(work.q_start[n])}"
        return _diagnostic(f"{message}; {_sizes(shape)}", schedule)
    expected = visible_at(replace(spec, mask=Binary("==", spec.kv_head, Name("$hk"))), {
        **captures, **shape.sizes(), "h": work.h.view(-1, 1, 1, 1), "$hk": work.hk.view(-1, 1, 1, 1),
    }).expand(len(work.h), 1, 1, 1).reshape(-1)  # fmt: skip
    if not bool(expected.all()):
        n = int((~expected).nonzero()[0])
        message = f"head h={int(work.h[n])}, batch b={int(work.b[n])} reads key head {int(work.hk[n])}"
        return _diagnostic(f"{message}, and in the reference another; {_sizes(shape)}", _assigned(schedule, "hk"))
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
    return _diagnostic(f"the query tile at {at} {what}; {_sizes(points.shape)}", points.kernel.region("key_tile"))


# ---- keys and rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Kernel and spec at the places of one size."""

    points: KernelPoints
    spec: AttentionSpec
    captures: Captures
    places: Places
    tile: SimpleNamespace
    visits: Visits
    marks: list[int]
    random: Random

    def fault(self) -> Diagnostic | None:
        chosen = self._chosen()
        which = torch.tensor([p for p, keys in enumerate(chosen) for _ in keys])
        tiles = torch.tensor([n for keys in chosen for n, _ in keys])
        columns = torch.tensor([c for keys in chosen for _, c in keys])
        single = self._keys(which, tiles, columns)
        some = [self.random.sample(keys * _GROUPS, _GROUPS) for keys in chosen]
        everywhere = torch.arange(len(chosen))
        several = [
            self._keys(everywhere, torch.tensor([k[g][0] for k in some]), torch.tensor([k[g][1] for k in some]))
            for g in range(_GROUPS)
        ]
        update, finalize = (self.points.kernel.region(name) for name in ("row_update", "row_finalize"))
        courses = everywhere.repeat(len(_COURSES))
        return (
            self._compare(which, [single], self._scale())
            or self._compare(everywhere, several, update)
            or self._compare(courses, self._extreme(several), update, settled=True)
            or self._repeated()._compare(everywhere, [replace(k, s=k.s * 0.0) for k in several], finalize, settled=True)
        )

    def _repeated(self) -> _Comparison:
        """The same for rows that see as many keys as there are, all alike."""
        copies = max(1, self.points.shape.Lk // (_GROUPS * COLUMNS))
        return replace(self, points=self.points.with_copies(copies), spec=_of_copies(self.spec, copies))

    def _extreme(self, groups: list[Keys]) -> list[Keys]:
        """The same keys with scores that rise, fall or stay far from 0 from group to group, in each row by another step."""
        points, _, _, rows, _ = groups[0].s.shape
        steps = torch.logspace(*_STEPS, points * rows, base=2.0, dtype=torch.float64)
        steps = steps[torch.randperm(len(steps), generator=torch.Generator().manual_seed(rows))].view(
            points, 1, 1, rows, 1
        )
        found: list[Keys] = []
        for n, keys in enumerate(groups):
            scores = torch.cat([keys.s + (start + n * slope) * steps for start, slope in _COURSES])
            again = (x.repeat(len(_COURSES), 1, 1, 1, 1) for x in (keys.start, keys.j, keys.visited, keys.masked))
            start, j, visited, masked = again
            found.append(Keys(start, j, scores, visited, masked))
        return found

    def _chosen(self) -> list[list[tuple[int, list[int]]]]:
        """Key tiles and columns for each query tile."""
        edges = self._edges()
        rows: list[list[int]] = self.places.i.tolist()
        tiles = self.points.key_tiles
        return [
            choose_keys(i, self.points.keys, tiles, e, self.marks, self.random)
            for i, e in zip(rows, edges, strict=True)
        ]

    def _edges(self) -> list[list[int]]:
        """Key tiles next to which the kernel goes over from visited to not, or from masked to not, and some at which the mask
        seems to be at odds with that."""
        seen, masked = self.visits.times[:, :-1] > 0, self.visits.masked[:, :-1]
        sees_one, sees_all = self._coarse()
        turns = (seen[:, 1:] != seen[:, :-1]) | (masked[:, 1:] != masked[:, :-1])
        odd = (sees_one & ~seen) | (seen & ~masked & ~sees_all)
        found: list[list[int]] = []
        for turn, strange in zip(turns, odd, strict=True):
            borders: list[int] = turn.nonzero().reshape(-1).tolist()
            borders = self.random.sample(borders, min(len(borders), _EDGES))
            wrong: list[int] = strange.nonzero().reshape(-1).tolist()
            wrong = self.random.sample(wrong, min(len(wrong), _EDGES))
            found.append([*wrong, *borders, *(n + 1 for n in borders)])
        for place in (self.visits.times[:, -1] > 0).nonzero().reshape(-1).tolist():
            found[place].append(self.points.key_tiles)
        return found

    def _coarse(self) -> tuple[Tensor, Tensor]:
        """[P, key tiles]: does the first or last row see the first or last key of a key tile; do both see both."""
        keys, tiles = self.points.keys, self.points.key_tiles
        ends = torch.arange(tiles).view(-1, 1) * keys + torch.tensor([0, keys - 1])
        places = self.places
        scope = self._scope(torch.arange(len(places.b)), ends.reshape(1, 1, 1, -1), places.i[:, [0, -1]])
        with _of_the_reference():
            visible = visible_at(self.spec, scope)
        visible = visible.expand(len(places.b), 1, 2, 2 * tiles)
        by_tile = visible.reshape(len(places.b), 2, tiles, 2)
        return by_tile.amax(dim=(1, 3)), by_tile.amin(dim=(1, 3))

    def _scope(self, which: Tensor, j: Tensor, i: Tensor) -> dict[str, object]:
        at = (-1, 1, 1, 1)
        b, h = self.places.b[which].view(at), self.places.h[which].view(at)
        return {**self.captures, **self.points.shape.sizes(), "b": b, "h": h, "i": i.view(len(i), 1, -1, 1), "j": j}

    def _keys(self, which: Tensor, tiles: Tensor, columns: Tensor) -> Keys:
        at = (-1, 1, 1, 1, 1)
        start = (tiles * self.points.keys).view(at)
        j = start + columns.view(len(tiles), 1, 1, 1, -1)
        generator = torch.Generator().manual_seed(len(which))
        shape = (len(tiles), 1, 1, self.places.i.shape[1], columns.shape[1])
        s = torch.randn(shape, generator=generator, dtype=torch.float64) * _SCORE_SIZE
        visited = (self.visits.times[which, tiles] > 0).view(at)
        return Keys(start, j, s, visited, self.visits.masked[which, tiles].view(at))

    def _compare(self, which: Tensor, groups: list[Keys], otherwise: Node, settled: bool = False) -> Diagnostic | None:
        """`otherwise`: what is to blame where no key is seen or hidden wrongly; `settled`: none is."""
        i = self.places.i[which]
        tile = SimpleNamespace(**{name: value[which] for name, value in vars(self.tile).items()})
        j = torch.cat([k.j for k in groups], -1).squeeze(1)
        scope = self._scope(which, j, i) | {"s": torch.cat([k.s for k in groups], -1).squeeze(1)}
        columns = j.shape[-1]
        with fp64(), _of_the_reference():
            expected = spec_values_at(self.spec, scope, torch.eye(columns).expand(len(i), 1, -1, -1))
        attended = self.points.attend(tile, i, groups)
        out, lse = attended.out, attended.lse
        wanted = expected.out.squeeze(1)
        everywhere = _TOLERANCE / self.points.shape.Lk * wanted.abs().amax(-1, keepdim=True)
        allowed = _TOLERANCE * wanted.abs() + everywhere + _NOTHING
        wrong = ~((out - wanted).abs() <= allowed) & wanted.isfinite() & (out != wanted)
        if bool(wrong.any()):
            hidden = wrong & ((out == 0) != (wanted == 0))
            p, r, c = (hidden if bool(hidden.any()) else wrong).nonzero()[0].tolist()
            key, want, got = groups[c // COLUMNS], float(wanted[p, r, c]), float(out[p, r, c])
            if settled:
                more = math.isfinite(got) and abs(got) > want and self.points.copies == 1
                parts = (self.points.kernel.region("row_probs") if more else otherwise,)
            else:
                parts = self._parts(want, got, bool(key.visited[p]), bool(key.masked[p]), otherwise)
            values = f"the weight {got:.6g}, and in the reference {want:.6g}"
            where = f"key j={int(j[p, 0, 0, c])} has {values} {self._point(which, p, r)}"
            return _diagnostic(where, *parts)
        if self.spec.shift and bool((attended.peak > _LARGEST_WEIGHT).any()):
            p, r = (attended.peak > _LARGEST_WEIGHT).nonzero()[0].tolist()
            size = f"a weight of 2^{math.log2(float(attended.peak[p, r])):.0f} is added up"
            message = f"{size}, where sums hold 2^{math.log2(_LARGEST_WEIGHT):.0f}, {self._point(which, p, r)}"
            return _diagnostic(message, self.points.kernel.region("row_update"))
        if expected.lse is None:
            return None
        wanted = expected.lse.squeeze(1)
        wrong = ~((lse - wanted).abs() <= _TOLERANCE + _CONSTANTS * wanted.abs()) & ~wanted.isnan() & (lse != wanted)
        if bool(wrong.any()):
            p, r = wrong.nonzero()[0].tolist()
            values = f"the LSE is {float(lse[p, r]):.6g}, and in the reference {float(wanted[p, r]):.6g}"
            keys = f"over keys j={int(j[p].min())} to {int(j[p].max())}"
            return _diagnostic(f"{values} {keys} {self._point(which, p, r)}", otherwise)
        return None

    def _point(self, which: Tensor, p: int, r: int) -> str:
        place = int(which[p])
        b, h, i = int(self.places.b[place]), int(self.places.h[place]), int(self.places.i[place, r])
        return f"in row i={i} of head h={h}, batch b={b}; {_sizes(self.points.shape)}"

    def _parts(self, wanted: float, got: float, visited: bool, masked: bool, otherwise: Node) -> tuple[Node, ...]:
        """The parts of the kernel that a wrong weight points to."""
        kernel = self.points.kernel
        mask = _assigned(kernel.region("mask"), "s")
        if not math.isfinite(got):
            return (otherwise,)
        if wanted and not visited:
            return kernel.region("key_sequence"), mask
        if got and not wanted and not masked:
            return kernel.region("key_masked"), mask
        return (mask,) if bool(wanted) != bool(got) else (otherwise,)

    def _scale(self) -> Node:
        """What scores are multiplied by: the score region, or where it does nothing, the parameter that exponents take."""
        kernel = self.points.kernel
        score = kernel.region("score")
        hosts = (f for f in kernel.params if not f.fixed and isinstance(f.type, Scalar) and f.type.host is not None)
        return _assigned(score, "s") if score.body else next(hosts, score)


def _assigned(function: Function, name: str) -> Node:
    """Where a function assigns `name` or `tile.name`, else all of it."""
    for statement in function.body:
        match statement:
            case Assign(Name(id) | Attr(_, id)) if id == name:
                return statement
            case _:
                pass
    return function


@contextmanager
def _of_the_reference() -> Generator[None]:
    try:
        yield
    except CuError as error:
        raise _NoValue from error


def _diagnostic(message: str, *nodes: Node) -> Diagnostic:
    """`nodes`: what may be to blame, likeliest first; what passes made has often no place of its own."""
    placed = (node.span for part in nodes for node in walk(part) if node.span is not NOWHERE)
    return Diagnostic(_CODE, message, next(placed, NOWHERE))


def _sizes(shape: Shape) -> str:
    return ", ".join(f"{name}={size}" for name, size in shape.sizes().items())
