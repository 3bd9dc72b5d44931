"""A kernel that walks lists of tiles, against its mask: lists of made-up data, each tile judged by its elements.

A backward kernel's are lists of query tiles: there the rows of this module are keys, and its keys are queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

import torch
from torch import Tensor

from cubridge.engine.tile_lists import Value, reader, tile_lists
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate, evaluate_number
from cubridge.ir.nodes import Attr, Captured, Expr, Kernel, Name, Scalar, TileList
from cubridge.ir.region_types import family_of
from cubridge.ir.tile_shape import size_of
from cubridge.ir.walk import free_names
from cubridge.passes.regions import param, tile
from cubridge.passes.shape import tile_shape
from cubridge.passes.tile_check import TileFault, Values, visits

_LENGTHS: Final = (130, 300)
"""Of queries and keys alike, which every reference takes."""
_RUNS: Final = (1, 50)
MADE_UP_NUMBER: Final = 70
"""A number that only a launch knows."""


def list_fault(kernel: Kernel, predicate: Expr, exact: bool = True) -> TileFault | None:
    """The first fault of the lists that `kernel` walks for mask `predicate`, over small lengths with two batches, data in runs and
    data without order; None if there is none. A read of what is in no list ("outside") is one too, and, if they are to be
    `exact`, a tile that is visited for nothing ("empty")."""
    for length, run in product(_LENGTHS, _RUNS):
        names: dict[str, Value] = {"B": 2, "Hq": 2, "Hk": 1, "Lq": length, "Lk": length, "D": 64}
        names |= kernel.constant_values
        try:
            params = _params(kernel, names, run)
        except CuError:  # a division by Lq // 1000, say: the mask has no meaning at these lengths
            continue
        for fault in _faults(kernel, predicate, names, params):
            if exact or fault.what != "empty":
                return fault
    return None


def _params(kernel: Kernel, names: dict[str, Value], run: int) -> dict[str, Value]:
    """A value of every number and captured tensor of the kernel, and of the lists that are made of them."""
    generator = torch.Generator().manual_seed(len(kernel.params))
    params: dict[str, Value] = {}
    for field in kernel.params:
        match field.type:
            case Scalar(_, host) if host is not None:
                known = dict.fromkeys(free_names(host), MADE_UP_NUMBER) | names
                params[field.name] = evaluate_number(host, known)
            case Captured(dtype, extents):
                shape = tuple(int(evaluate_number(e, names)) for e in extents)  # pyright: ignore[reportArgumentType]
                data = runs(shape, run, generator)
                params[field.name] = data.float() if dtype.is_float else data
            case _:
                pass
    lists = {f.name: f.type for f in kernel.params if isinstance(f.type, TileList)}
    return params | {n: tile_lists(kind, names, params, torch.device("cpu")).int() for n, kind in lists.items()}


def runs(shape: tuple[int, ...], run: int, generator: torch.Generator, most: int = 5) -> Tensor:
    """Integers from -1 to below `most`, `run` alike side by side."""
    if not shape:
        return torch.zeros((), dtype=torch.int32)
    *outer, length = shape
    made = torch.randint(-1, most, (*outer, -(-length // run)), generator=generator, dtype=torch.int32)
    return made.repeat_interleave(run, dim=-1)[..., :length]


def _faults(kernel: Kernel, predicate: Expr, names: dict[str, Value], params: dict[str, Value]) -> Iterator[TileFault]:
    sides = _Sides.of(kernel)
    known: dict[Expr, Value] = {Name(n): v for n, v in names.items()}
    known.update((param(n), v) for n, v in params.items())
    for b, h in product(range(2), range(2)):
        fields = {"b": b, "h": h, "hk": 0}
        seen = _visible(predicate, names, params, fields, sides)
        for start in range(0, len(seen), sides.per_list):
            here = {**known, **_of_tile(fields), sides.origin: start}
            yield from _tile_faults(kernel, seen[start : start + sides.per_list], here, start)


@dataclass(frozen=True, slots=True)
class _Sides:
    """`origin`: the first of what a list is for; `row`, `key`: indices of what it is for and of what its tiles hold; `hides`: are
    rows past the last one, and keys, hidden."""

    origin: Attr
    row: Name
    key: Name
    per_list: int
    per_tile: int
    hides: bool

    @staticmethod
    def of(kernel: Kernel) -> _Sides:
        shape, origin = tile_shape(kernel), family_of(kernel).origin
        queries, keys = size_of(kernel, shape.queries), size_of(kernel, shape.keys)
        if origin == tile("q_start"):
            return _Sides(origin, Name("i"), Name("j"), queries, keys, False)
        return _Sides(origin, Name("j"), Name("i"), keys, queries, True)


def _of_tile(fields: dict[str, int]) -> dict[Expr, Value]:
    return {tile(name): value for name, value in fields.items()}


def _visible(
    predicate: Expr, names: dict[str, Value], params: dict[str, Value], fields: dict[str, int], sides: _Sides
) -> Tensor:
    """[queries, key tiles, keys]: what each row of one head sees."""
    length = int(names["Lq"])
    rows = -(-length // sides.per_list) * sides.per_list if sides.hides else length
    i = torch.arange(rows, dtype=torch.int32).view(-1, 1)
    j = torch.arange(-(-length // sides.per_tile) * sides.per_tile, dtype=torch.int32)
    visible = evaluate(predicate, reader(names, params, _of_tile(fields) | {sides.row: i, sides.key: j}))
    assert isinstance(visible, Tensor)
    if sides.hides:
        visible = visible & (i < length) & (j < length)
    return visible.expand(rows, len(j)).view(rows, -1, sides.per_tile)


def _tile_faults(kernel: Kernel, seen: Tensor, values: Values, q_start: int) -> Iterator[TileFault]:
    """`seen` [rows, key tiles, keys]: what the rows of this query tile see."""
    try:
        visited = {v.tile: v.masked for v in visits(kernel, values)}
    except IndexError:
        yield TileFault("outside", q_start, 0, values)
        return
    for tile_number, part in enumerate(seen.unbind(1)):
        some, every = bool(part.any()), bool(part.all())
        wrong = {
            "skipped": some and tile_number not in visited,
            "unmasked": visited.get(tile_number) is False and not every,
            "empty": tile_number in visited and not some,
        }
        yield from (TileFault(what, q_start, tile_number, values) for what, is_so in wrong.items() if is_so)
