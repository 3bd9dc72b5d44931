"""Which long problems, and which rows and keys of them, show that a kernel differs from a spec: those at ends, at borders of tiles
and of what is visited, and near every number that occurs in either; and some at random."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.ir.evaluate import known_number
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.nodes import SIZES, Binary, Call, FloatLit, IntLit, Name, TileList
from cubridge.ir.spec import AttentionSpec, Shape
from cubridge.ir.tile_shape import head_dim
from cubridge.ir.walk import free_names, walk
from cubridge.verify.ranges import LIMITS

if TYPE_CHECKING:
    from cubridge.ir.nodes import Expr, Kernel, Node

_SHAPES: Final = (
    Shape(9, 128, 8, 4097, 8192, 0),
    Shape(1, 9, 3, 16389, 4097, 0),
    Shape(2, 5, 5, 8192, 16389, 0),
    Shape(LIMITS["B"], LIMITS["Hq"], 8, 129, 641, 0),
    Shape(1, 2, 2, 128, LIMITS["Lk"], 0),
)
"""Both orders of lengths; each size at its limit; a last key tile of one key, whatever its size."""
_LONGEST_WITH_LISTS: Final = 131072
_MOST_LISTED: Final = 1 << 18
"""Keys where the key sequence comes from lists, of which every element is computed."""
_LONGEST: Final = LIMITS["Lk"]
_NEAR: Final = 4
_ODD: Final = 6
_LARGEST_STEP: Final = 1 << 22
QUERY_TILES: Final = 16
KEY_TILES: Final = 32
ROWS: Final = 8
COLUMNS: Final = 8


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers in the formulas of a kernel and a spec. `odd`: whole ones that the kernel reads and the spec does not, the largest
    first; `of_sizes`: what is computed of sizes alone."""

    all: frozenset[float]
    of_spec: frozenset[float]
    odd: tuple[int, ...]
    of_sizes: tuple[Expr, ...]

    @staticmethod
    def of(spec: AttentionSpec, kernel: Kernel) -> Numbers:
        known = {*SIZES, *kernel.constant_values}
        of_spec, of_kernel = ([*_nodes(part)] for part in (spec, kernel))
        wanted, found = _values(of_spec), _values(of_kernel)
        computed = [n for n in (*of_spec, *of_kernel) if isinstance(n, Binary | Call | Name)]
        of_sizes = [n for n in computed if (names := free_names(n)) <= known and names & {*SIZES}]
        odd = sorted({int(n) for n in found - wanted}, reverse=True)
        return Numbers(found | wanted, wanted, tuple(odd), tuple(dict.fromkeys(of_sizes)))

    def steps(self) -> list[int]:
        """What captured integers are to be multiples of: those first that the kernel alone has."""
        both = [*self.odd, *sorted(map(int, self.of_spec), reverse=True)]
        return [n for n in both if 16 <= n <= _LARGEST_STEP]


def _nodes(part: Kernel | AttentionSpec) -> Iterable[Node]:
    return (n for e in _expressions(part) for n in walk(e))


def _values(nodes: Iterable[Node]) -> frozenset[float]:
    return frozenset(abs(n.value) for n in nodes if isinstance(n, IntLit | FloatLit) and isfinite(n.value))


def _expressions(part: Kernel | AttentionSpec) -> Iterable[Node]:
    if isinstance(part, AttentionSpec):
        lse = () if part.lse is None else (part.lse,)
        yield from (part.score, part.mask, part.weight, part.finalize, part.kv_head, *lse)
        yield from (e for row in part.rows for e in (row.over, row.body))
    else:
        yield from (*part.regions, part.schedule, *part.params)


def long_shapes(spec: AttentionSpec, kernel: Kernel, numbers: Numbers) -> list[Shape]:
    """Sizes that meet the preconditions; besides the usual ones, lengths next to numbers that the kernel reads alone."""
    near = [n for n in numbers.odd if 256 < n < _LONGEST][:_NEAR]
    lists = any(isinstance(f.type, TileList) for f in kernel.params)
    longest = _LONGEST_WITH_LISTS if lists else LIMITS["Lq"]
    long = [Shape(1, 2, 1, longest, keys, 0) for keys in (385, longest - 127)]
    wanted = [*_SHAPES, *long, *(Shape(1, 2, 1, n + d, n + d, 0) for n in near for d in (0, 1))]
    most, dim = _MOST_LISTED if lists else LIMITS["Lk"], head_dim(kernel)
    return fitting_shapes(spec, [Shape(s.B, s.Hq, s.Hk, s.Lq, min(s.Lk, most), dim) for s in wanted])


@dataclass(frozen=True, slots=True)
class Marks:
    """Numbers near which a formula of either may change. `odd`: those that the kernel alone reads, which are looked at first."""

    all: list[int]
    odd: list[int]

    @staticmethod
    def of(numbers: Numbers, kernel: Kernel, shape: Shape) -> Marks:
        """Numbers in formulas, and what formulas of sizes alone are at `shape`."""
        names = shape.sizes() | kernel.constant_values
        computed = (known_number(e, names) for e in numbers.of_sizes)
        found = {abs(int(n)) for n in (*numbers.all, *computed) if n is not None and abs(n) < _LONGEST * 2}
        return Marks(sorted(found), [*numbers.odd[:_ODD]])


@dataclass(frozen=True, slots=True)
class Places:
    """Query tiles to look at [P]: batch, head, number of the query tile, and their rows [P, 8]."""

    b: Tensor
    h: Tensor
    tile: Tensor
    i: Tensor


def choose_places(shape: Shape, rows: int, marks: Marks, random: Random) -> Places:
    """Query tiles of `rows` rows; every tile, head or batch that a mark asks for is met by some place."""
    tiles = -(-shape.Lq // rows)
    near = {n // rows + d for n in marks.all for d in (-1, 0, 1)} | {0, 1, tiles - 2, tiles - 1}
    wanted = _sample(near, tiles, QUERY_TILES, random, {n // rows for n in marks.odd})
    wanted += [random.randrange(tiles) for _ in range(4)]
    heads, batches = (_sample(_around(marks.all, n), n, len(wanted), random, marks.odd) for n in (shape.Hq, shape.B))
    places = [
        (_cycle(batches, n, shape.B, random), _cycle(heads, n, shape.Hq, random), tile) for n, tile in enumerate(wanted)
    ]
    found = [_rows_of(tile * rows, min(rows, shape.Lq - tile * rows), marks, random) for _, _, tile in places]
    b, h, tile = (torch.tensor(x) for x in zip(*places, strict=True))
    return Places(b, h, tile, torch.tensor(found))


def _rows_of(first: int, count: int, marks: Marks, random: Random) -> list[int]:
    special = [n + d - first for n in marks.all for d in (-1, 0, 1)]
    rows = {0, count - 1, *_sample(special, count, 5, random, (n - first for n in marks.odd))}
    return [*sorted(first + r for r in rows), *(first + random.randrange(count) for _ in range(ROWS - len(rows)))]


def choose_keys(
    i: Sequence[int], keys: int, tiles: int, edges: Iterable[int], marks: Marks, random: Random
) -> list[tuple[int, list[int]]]:
    """Key tiles for one query tile with rows i, each with the columns to look at. `edges`: key tiles that must be among them."""
    first, last, second = i[0], i[-1], i[1]
    places = {first, last, *marks.all, *(x + n * d for x in (first, last, second) for n in marks.all for d in (-1, 1))}
    near = {n // keys + d for n in places for d in (-1, 0, 1)} | {0, 1, tiles - 2, tiles - 1}
    odd = [*marks.odd, *(first + n * d for n in marks.odd for d in (-1, 1))]
    chosen = dict.fromkeys([*edges, *_sample(near, tiles, KEY_TILES, random, {n // keys for n in odd})])
    chosen |= dict.fromkeys(random.randrange(tiles) for _ in range(4))
    exact = sorted({n + d for n in {*places, *i} for d in (-1, 0, 1)})
    return [(tile, _columns(tile * keys, keys, exact, odd, random)) for tile in chosen]


def _columns(first: int, keys: int, exact: Sequence[int], odd: Iterable[int], random: Random) -> list[int]:
    special = [n - first for n in exact[bisect_left(exact, first) : bisect_left(exact, first + keys)]]
    columns = {0, keys - 1, *_sample(special, keys, 6, random, (n + d - first for n in odd for d in (0, 1, -1)))}
    while len(columns) < COLUMNS:
        columns.add(random.randrange(keys))
    return sorted(columns)


def _around(marks: Iterable[int], size: int) -> set[int]:
    return {n + d for n in marks for d in (-1, 0, 1)} | {0, size - 1}


def _sample(wanted: Iterable[int], size: int, most: int, random: Random, first: Iterable[int] = ()) -> list[int]:
    """At most so many of `wanted` within [0, size), the ends and `first` among them."""
    inside = sorted({n for n in wanted if 0 <= n < size})
    if len(inside) <= most:
        return inside
    chosen = {inside[0], inside[-1], *[n for n in first if 0 <= n < size][: most - 2]}
    others = [n for n in inside if n not in chosen]
    return sorted({*chosen, *random.sample(others, most - len(chosen))})


def _cycle(values: Sequence[int], n: int, size: int, random: Random) -> int:
    """All of `values` in turn, then any."""
    return values[n] if n < len(values) else random.randrange(size)
