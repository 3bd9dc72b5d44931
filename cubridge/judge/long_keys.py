"""Which keys of chosen rows of a long problem are looked at, and with which scores and values: each key tile as if there were no
other, some tiles one after the other, and very many where the row state counts or sums."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.engine.dense import visible_at
from cubridge.engine.values.points import Keys
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import FloatLit, IntLit
from cubridge.ir.walk import walk
from cubridge.judge import long_scores
from cubridge.judge.long_faults import scale_of
from cubridge.judge.long_points import COLUMNS, choose_keys
from cubridge.passes.row_state import ROW_REGIONS

if TYPE_CHECKING:
    from cubridge.engine.values.points import KernelPoints, Visits
    from cubridge.ir.nodes import Kernel, Node
    from cubridge.ir.spec import AttentionSpec
    from cubridge.judge.long_captures import Captures
    from cubridge.judge.long_points import Marks, Places

_EDGES: Final = 6
_FEW: Final = 4
"""Of so many key tiles one has scores far from 0."""
_SOME: Final = 3
_MORE: Final = 24
"""Key tiles that one row takes in one after the other; a tile may come again."""
_MOST: Final = 400
_KeysOfTile = tuple[int, list[int]]
"""A key tile, and columns of it."""


class NoValue(Exception):
    """The reference itself has none at a point: it divides by what made-up captures make 0, say. That size shows nothing."""


@contextmanager
def of_the_reference() -> Generator[None]:
    try:
        yield
    except CuError as error:
        raise NoValue from error


@dataclass(frozen=True, slots=True)
class Batch:
    """Keys of the places `which` [P], a group after the other. `blame`: what to blame where no key is seen or hidden wrongly;
    `settled`: none is."""

    which: Tensor
    groups: list[Keys]
    blame: Node
    settled: bool = False


def scope_of(
    places: Places, captures: Captures, points: KernelPoints, which: Tensor, j: Tensor, i: Tensor
) -> dict[str, object]:
    """What a spec reads at keys j [P, 1, 1, C] of rows i [P, R]."""
    at = (-1, 1, 1, 1)
    b, h = places.b[which].view(at), places.h[which].view(at)
    return {**captures, **points.shape.sizes(), "b": b, "h": h, "i": i.view(len(i), 1, -1, 1), "j": j}


@dataclass
class LongKeys:
    """The keys of all places of one size. `levels`: scores to be near."""

    points: KernelPoints
    spec: AttentionSpec
    captures: Captures
    places: Places
    visits: Visits
    marks: Marks
    levels: list[float]
    random: Random

    def batches(self, at_length: bool) -> Iterator[Batch]:
        """`at_length`: with rows of many key tiles."""
        yield self._single(self._chosen, [0.0])
        yield self._several(_SOME)
        yield self._courses()
        yield replace(self._single([keys[::_FEW] for keys in self._chosen], self.levels), settled=True)
        if at_length:
            yield self._several(_MORE)
            yield from self._many()

    def _single(self, chosen: list[list[_KeysOfTile]], levels: list[float]) -> Batch:
        """Each key tile as if there were no other."""
        which = torch.tensor([p for p, keys in enumerate(chosen) for _ in keys])
        scores = long_scores.of_one_group(len(which), self._rows, COLUMNS, levels)
        (v,) = _by_key(1)
        keys = self._keys(which, [k for keys in chosen for k in keys], scores, v)
        return Batch(which, [keys], scale_of(self.points.kernel))

    def _several(self, groups: int) -> Batch:
        """One key tile after the other, for each place."""
        some = [self.random.sample(keys * groups, groups) for keys in self._chosen]
        scores = long_scores.of_groups(len(some), groups, self._rows, COLUMNS, self.levels)
        which = torch.arange(len(some))
        keys = [
            self._keys(which, [k[g] for k in some], s, v)
            for g, (s, v) in enumerate(zip(scores, _by_key(groups), strict=True))
        ]
        return Batch(which, keys, self.points.kernel.region("row_update"))

    def _courses(self) -> Batch:
        """As `_several`, for each place with scores of every course."""
        which = torch.arange(len(self._chosen)).repeat(len(long_scores.COURSES))
        some = [self.random.sample(keys * _SOME, _SOME) for keys in self._chosen] * len(long_scores.COURSES)
        scores = long_scores.of_courses(len(self._chosen), _SOME, self._rows, COLUMNS)
        keys = [
            self._keys(which, [k[g] for k in some], s, v)
            for g, (s, v) in enumerate(zip(scores, _by_key(_SOME), strict=True))
        ]
        return Batch(which, keys, self.points.kernel.region("row_update"), settled=True)

    def _many(self) -> Iterator[Batch]:
        """So many key tiles of one row that counts and sums pass the numbers in the row regions, as far as that is quick."""
        largest, blame = _largest_number(self.points.kernel)
        bare = (self.visits.times > 0) & ~self.visits.masked
        visited = [(p, n) for p, keys in enumerate(self._chosen) for n, _ in keys if bare[p, n]]
        if largest <= _MORE or not visited:
            return
        place, tile = self.random.choice(visited)
        columns = self.points.keys
        scores = long_scores.of_large_sums(min(int(largest) + 2, _MOST), self._rows, columns)
        which, value = torch.tensor([place]), torch.ones(columns, 1, dtype=torch.float64)
        keys = [self._keys(which, [(tile, [*range(columns)])], s, value) for s in scores]
        yield Batch(which, keys, blame)

    @property
    def _rows(self) -> int:
        return self.places.i.shape[1]

    @cached_property
    def _chosen(self) -> list[list[_KeysOfTile]]:
        """Key tiles and columns for each place."""
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
        everywhere, j, i = torch.arange(len(places.b)), ends.reshape(1, 1, 1, -1), places.i[:, [0, -1]]
        scope = scope_of(places, self.captures, self.points, everywhere, j, i)
        with of_the_reference():
            visible = visible_at(self.spec, scope)
        visible = visible.expand(len(places.b), 1, 2, 2 * tiles)
        by_tile = visible.reshape(len(places.b), 2, tiles, 2)
        return by_tile.amax(dim=(1, 3)), by_tile.amin(dim=(1, 3))

    def _keys(self, which: Tensor, chosen: list[_KeysOfTile], scores: Tensor, v: Tensor) -> Keys:
        at = (-1, 1, 1, 1, 1)
        tiles = torch.tensor([tile for tile, _ in chosen])
        columns = torch.tensor([columns for _, columns in chosen])
        start = (tiles * self.points.keys).view(at)
        j = start + columns.view(len(tiles), 1, 1, 1, -1)
        visited = (self.visits.times[which, tiles] > 0).view(at)
        return Keys(start, j, scores, v, visited, self.visits.masked[which, tiles].view(at))


def _by_key(groups: int) -> tuple[Tensor, ...]:
    """Values that give each key a column of the output, [COLUMNS, COLUMNS * groups] for each group."""
    return torch.diag(long_scores.large_values(COLUMNS * groups)).split(COLUMNS)


def _largest_number(kernel: Kernel) -> tuple[float, Node]:
    """Of the row regions, and the region that has it."""
    regions = [kernel.region(name) for name in ROW_REGIONS]
    found = [
        (abs(n.value), r) for r in regions for n in walk(r) if isinstance(n, IntLit | FloatLit) and isfinite(n.value)
    ]
    return max(found, key=lambda pair: pair[0], default=(0.0, kernel.region("row_update")))
