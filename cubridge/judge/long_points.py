"""Which long problems, and which rows and keys of them, show that a kernel differs from a spec: those at ends, at borders of tiles
and of what is visited, and near every number that occurs in either; and some at random."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.engine.values.gather import MadeUp
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.nodes import SIZES, Binary, Call, Expr, Index, IntLit, Name, TileList
from cubridge.ir.spec import AttentionSpec, Shape
from cubridge.ir.walk import free_names, walk

if TYPE_CHECKING:
    from cubridge.ir.nodes import Kernel, Node

    Captures = Mapping[str, int | float | MadeUp]

_SHAPES: Final = (
    Shape(9, 128, 8, 4097, 8192, 0),
    Shape(1, 9, 3, 16389, 4099, 0),
    Shape(2, 5, 5, 8192, 16389, 0),
    Shape(1, 2, 1, 131072, 131072, 0),
    Shape(1, 2, 2, 128, 1 << 21, 0),
)
_MOST_LISTED: Final = 1 << 18
"""Keys where the key sequence comes from lists, of which every element is computed."""
_LONGEST: Final = 1 << 22
"""Longest length that a number in an expression asks for."""
_FURTHER: Final = 3
_RUN: Final = 700
"""Elements of a captured tensor that are the same: several tiles, and not whole ones."""
QUERY_TILES: Final = 16
KEY_TILES: Final = 32
ROWS: Final = 8
COLUMNS: Final = 8


def long_shapes(spec: AttentionSpec, kernel: Kernel, head_dim: int) -> list[Shape]:
    """Sizes that meet the preconditions; besides the usual ones, lengths beyond large numbers that the two read."""
    longest = max(s.Lq for s in _SHAPES)
    beyond = sorted(n for n in literals(spec, kernel) if longest <= n < _LONGEST)[-_FURTHER:]
    wanted = [*_SHAPES, *(Shape(1, 2, 1, n + 300, n + 300, 0) for n in beyond)]
    listed = any(isinstance(f.type, TileList) for f in kernel.params)
    most = _MOST_LISTED if listed else 2 * _LONGEST
    return fitting_shapes(spec, [Shape(s.B, s.Hq, s.Hk, s.Lq, min(s.Lk, most), head_dim) for s in wanted])


def literals(spec: AttentionSpec, kernel: Kernel) -> set[int]:
    """Whole numbers in the expressions of both."""
    return {abs(n.value) for part in _parts(spec, kernel) for n in walk(part) if isinstance(n, IntLit)}


def marks(spec: AttentionSpec, kernel: Kernel, shape: Shape) -> list[int]:
    """Numbers near which a formula of either may change: literals, and what formulas of sizes alone are at `shape`."""
    found = literals(spec, kernel)
    names = shape.sizes() | kernel.constant_values
    for part in _parts(spec, kernel):
        for node in walk(part):
            if (
                isinstance(node, Binary | Call | Name)
                and free_names(node) <= names.keys()
                and free_names(node) & {*SIZES}
            ):
                try:
                    value = evaluate_number(node, names)
                except CuError:
                    continue
                if isinstance(value, int | float) and abs(value) < _LONGEST * 2:
                    found.add(abs(int(value)))
    return sorted(found)


def _parts(spec: AttentionSpec, kernel: Kernel) -> Iterable[Node]:
    lse = () if spec.lse is None else (spec.lse,)
    yield from (spec.score, spec.mask, spec.weight, spec.finalize, spec.kv_head, *lse)
    yield from (e for row in spec.rows for e in (row.over, row.body))
    yield from kernel.regions
    yield kernel.schedule
    yield from kernel.params


def made_up_captures(spec: AttentionSpec, shape: Shape, seed: int) -> Captures:
    """A value for every capture. Integers are small in every other problem, and else as large as lengths; those that index
    something are 0 or 1, those that divide something are positive. Those of a mask come in runs in half of the problems."""
    indices, divisors = _used_as_index(spec), _used_as_divisor(spec)
    in_mask = {n.base.id for n in walk(spec.mask) if isinstance(n, Index) and isinstance(n.base, Name)}
    random = Random(seed)
    large = max(shape.Lq, shape.Lk) + 1
    found: dict[str, int | float | MadeUp] = {}
    for n, capture in enumerate(spec.captures):
        is_float, is_flag = capture.dtype == "f32", capture.dtype == "bool"
        narrow = is_flag or capture.name in indices
        low, high = (0, 2) if narrow else (-1, 4) if seed % 2 == 0 else (0, large)
        low = max(low, 1) if capture.name in divisors else low
        if capture.extents:
            extents = tuple(int(evaluate_number(e, shape.sizes())) for e in capture.extents)  # pyright: ignore
            run = _RUN if seed >= 2 and capture.name in in_mask else 1
            found[capture.name] = MadeUp(extents, 31 * seed + n, low, high, is_float, is_flag, run=run)
        else:
            number = 0.25 + random.random() if is_float else random.randrange(max(low, 1), high)
            found[capture.name] = bool(number) if is_flag else number
    return found


def _used_as_index(spec: AttentionSpec) -> set[str]:
    inside = (i for node in _read_per_key(spec) if isinstance(node, Index) for i in node.indices)
    return {n.base.id for i in inside for n in walk(i) if isinstance(n, Index) and isinstance(n.base, Name)}


def _used_as_divisor(spec: AttentionSpec) -> set[str]:
    below = (node.right for node in _read_per_key(spec) if isinstance(node, Binary) and node.op in ("/", "//", "%"))
    return {n.id for divisor in below for n in walk(divisor) if isinstance(n, Name)}


def _read_per_key(spec: AttentionSpec) -> Iterable[Node]:
    parts: list[Expr] = [spec.score, spec.mask, spec.weight, *(r.over for r in spec.rows)]
    return (node for part in parts for node in walk(part))


@dataclass(frozen=True, slots=True)
class Places:
    """Query tiles to look at [P]: batch, head, number of the query tile, and their rows [P, 8]."""

    b: Tensor
    h: Tensor
    tile: Tensor
    i: Tensor


def choose_places(shape: Shape, rows: int, marks: Sequence[int], random: Random) -> Places:
    """Query tiles of `rows` rows; every tile, head or batch that a mark asks for is met by some place."""
    tiles = -(-shape.Lq // rows)
    near = {n // rows + d for n in marks for d in (-1, 0, 1)} | {0, 1, tiles - 2, tiles - 1}
    wanted = _sample(near, tiles, QUERY_TILES, random)
    wanted += [random.randrange(tiles) for _ in range(4)]
    heads = _sample(_around(marks, shape.Hq), shape.Hq, len(wanted), random)
    batches = _sample(_around(marks, shape.B), shape.B, len(wanted), random)
    places = [
        (_cycle(batches, n, shape.B, random), _cycle(heads, n, shape.Hq, random), tile) for n, tile in enumerate(wanted)
    ]
    found = [_rows_of(tile * rows, min(rows, shape.Lq - tile * rows), marks, random) for _, _, tile in places]
    b, h, tile = (torch.tensor(x) for x in zip(*places, strict=True))
    return Places(b, h, tile, torch.tensor(found))


def _rows_of(first: int, count: int, marks: Sequence[int], random: Random) -> list[int]:
    special = [n + d for n in marks for d in (-1, 0, 1) if first <= n + d < first + count]
    rows = {first, first + count - 1, *random.sample(special, min(len(special), 3))}
    return [*sorted(rows), *(first + random.randrange(count) for _ in range(ROWS - len(rows)))]


def choose_keys(
    i: Sequence[int], keys: int, tiles: int, edges: Iterable[int], marks: Sequence[int], random: Random
) -> list[tuple[int, list[int]]]:
    """Key tiles for one query tile with rows i, each with the columns to look at. `edges`: key tiles that must be among them."""
    places = {i[0], i[-1], *marks, *(x + n * sign for x in (i[0], i[-1], i[1]) for n in marks for sign in (-1, 1))}
    near = {n // keys + d for n in places for d in (-1, 0, 1)} | {0, 1, tiles - 2, tiles - 1}
    chosen = dict.fromkeys([*edges, *_sample(near, tiles, KEY_TILES, random)])
    chosen |= dict.fromkeys(random.randrange(tiles) for _ in range(4))
    exact = sorted({n + d for n in {*places, *i} for d in (-1, 0, 1)})
    return [(tile, _columns(tile * keys, keys, exact, random)) for tile in chosen]


def _columns(first: int, keys: int, exact: Sequence[int], random: Random) -> list[int]:
    special = [n - first for n in exact[bisect_left(exact, first) : bisect_left(exact, first + keys)]]
    columns = {0, keys - 1, *random.sample(special, min(len(special), 4))}
    while len(columns) < COLUMNS:
        columns.add(random.randrange(keys))
    return sorted(columns)


def _around(marks: Iterable[int], size: int) -> set[int]:
    return {n + d for n in marks for d in (-1, 0, 1)} | {0, size - 1}


def _sample(wanted: Iterable[int], size: int, most: int, random: Random) -> list[int]:
    """At most so many of `wanted` within [0, size), the ends among them."""
    inside = sorted({n for n in wanted if 0 <= n < size})
    if len(inside) <= most:
        return inside
    return sorted({inside[0], inside[-1], *random.sample(inside, most - 2)})


def _cycle(values: Sequence[int], n: int, size: int, random: Random) -> int:
    """All of `values` in turn, then any."""
    return values[n] if n < len(values) else random.randrange(size)
