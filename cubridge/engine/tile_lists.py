"""Lists of key tiles, from the predicate of a mask and the data that it reads: the meaning of `TileList`, by torch.

Every element of every tile is looked at, on the device of the data and without waiting for it, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from cubridge.engine.values.gather import Elements
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate
from cubridge.ir.nodes import Attr, Expr, Name, QueryTileList, TileList

MAX_ELEMENTS: Final = 1 << 24
"""Elements of the mask that are in memory at once."""
LARGEST: Final = 2**15 - 1
"""Of an entry, which has 16 bits."""
MAX_ENTRIES: Final = 1 << 26
"""Of all lists of a launch together: 128 MiB."""

Value = Tensor | bool | int | float
Params = Mapping[str, "Value | Elements"]
"""Parameters of the kernel by name: numbers, and captured tensors as the kernel reads them."""


def tile_lists(kind: TileList, names: Mapping[str, Value], params: Params, device: torch.device) -> Tensor:
    """The lists [lists, entries], int16, as `TileList` lays them out; entries after the last tile are -1.
    `names`: sizes and constants. Errors: CU301 for a name without value; CU826 for lists that entries or memory cannot hold."""
    shape = list_shape(kind, names, params)
    if 0 in (shape.lists, shape.tiles):
        return torch.zeros(shape.lists, kind.HEAD + shape.tiles, dtype=torch.int16, device=device)
    some, every = _seen(kind.keep, shape, names, params, device)
    return in_order(some, every, shape.turns(torch.arange(shape.lists, device=device))).to(torch.int16)


def list_shape(kind: TileList, names: Mapping[str, Value], params: Params) -> ListShape:
    """How large the lists of a launch are. Errors: CU301 for a name without value; CU826 for lists that entries or memory cannot
    hold."""
    shape = ListShape.of(kind, names, params)
    if shape.tiles > LARGEST:
        raise _refused(kind, f"{shape.tiles} tiles, and a list of them has entries of 16 bits")
    if shape.lists * (shape.tiles + kind.HEAD) > MAX_ENTRIES:
        held = f"more than {MAX_ENTRIES >> 19} MiB"
        raise _refused(kind, f"{shape.lists} lists of {shape.tiles} tiles take {held}")
    return shape


@dataclass(frozen=True, slots=True)
class ListsOfRows:
    """The lists of a problem of any size, each made when it is read, and for those of its rows alone that are among `rows`:
    what these see is right. A list that has none of them is made for its first row."""

    kind: TileList
    names: Mapping[str, Value]
    params: Params
    rows: Tensor
    _made: dict[int, Tensor] = field(default_factory=dict[int, Tensor], init=False, repr=False)

    @property
    def size(self) -> ListShape:
        return ListShape.of(self.kind, self.names, self.params)

    @property
    def shape(self) -> tuple[int, int]:
        return self.size.lists, self.size.tiles + self.kind.HEAD

    @property
    def ndim(self) -> int:
        return 2

    def __getitem__(self, indices: tuple[Tensor, ...], /) -> Tensor:
        lists, at = torch.broadcast_tensors(*(torch.as_tensor(x) for x in indices))
        numbers, place = lists.unique(return_inverse=True)
        made = torch.cat([self._list(int(number)) for number in numbers])
        return made[place, at]

    def _list(self, number: int) -> Tensor:
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]

    def _make(self, number: int) -> Tensor:
        size = self.size
        first = number % size.per_head * size.per_list
        rows = self.rows[(self.rows >= first) & (self.rows < first + size.per_list)]
        i = (rows if len(rows) else torch.tensor([first])).view(1, -1, 1, 1)
        tiles, numbers = torch.arange(size.tiles), torch.tensor([number])
        seen = _of_tiles(self.kind.keep, size, numbers, i, tiles, self.names, self.params)
        return in_order(*seen, size.turns(numbers))


def in_order(some: Tensor, every: Tensor, turns: Tensor) -> Tensor:
    """The lists of the tiles [lists, tiles] of which `some` pair is visible and, among them, `every` pair. `turns`: the tiles in
    the order in which they come."""
    tiles = some.shape[1]
    some, every = some.gather(1, turns), every.gather(1, turns)
    kind = torch.where(some, torch.where(every, tiles, 0), 2 * tiles) + torch.arange(tiles, device=some.device)
    order = turns.gather(1, kind.sort(dim=1).values % tiles)
    count, masked = some.sum(1, keepdim=True), (some & ~every).sum(1, keepdim=True)
    order = torch.where(torch.arange(tiles, device=some.device) < count, order, -1)
    return torch.cat((count, masked, order), dim=1)


@dataclass(frozen=True, slots=True)
class ListShape:
    """How many lists there are for each batch and head, what they are made for, how many rows (or keys) a list is for, and how many
    keys (or rows) a tile has."""

    kind: type[TileList]
    sizes: Mapping[str, int]
    axes: tuple[str, ...]
    per_list: int
    per_tile: int

    @staticmethod
    def of(kind: TileList, names: Mapping[str, Value], params: Params) -> ListShape:
        def number(expr: Expr) -> int:
            return int(evaluate(expr, reader(names, params, {})))

        sizes = {name: int(names[name]) for name in ("B", "Hq", "Hk", "Lq", "Lk")}
        axes = tuple(axis.id for axis in kind.axes if isinstance(axis, Name))
        per_list, per_tile = number(kind.per_list), number(kind.per_tile)
        if per_list < 1 or per_tile < 1:
            raise _refused(kind, f"a list is for {per_list} rows or keys, and its tiles have {per_tile}")
        return ListShape(type(kind), sizes, axes, per_list, per_tile)

    @property
    def lengths(self) -> tuple[int, int]:
        """Of what lists are for, and of what tiles hold."""
        of_lists, of_tiles = self.kind.LENGTHS
        return self.sizes[of_lists], self.sizes[of_tiles]

    @property
    def per_head(self) -> int:
        return -(-self.lengths[0] // self.per_list)

    @property
    def lists(self) -> int:
        count = self.per_head
        for axis in self.axes:
            count *= self.sizes[axis]
        return count

    @property
    def tiles(self) -> int:
        return -(-self.lengths[1] // self.per_tile)

    def turns(self, lists: Tensor) -> Tensor:
        """[lists, tiles]: the tiles in the order in which they come, of each kind."""
        at = torch.arange(self.tiles, device=lists.device)
        if self.kind is not QueryTileList:
            return at.flip(0).expand(len(lists), -1)
        first = lists % self.per_head * self.per_list // self.per_tile
        return (first.view(-1, 1) + at) % max(1, self.tiles)

    def tile_fields(self, lists: Tensor) -> dict[str, Tensor]:
        """`tile.b`, `tile.h` and `tile.hk` of some lists; 0 where lists are not made for each."""
        head = lists // self.per_head
        heads = self.sizes["Hq"] if "Hq" in self.axes else 1
        h = head % heads
        return {"b": head // heads, "h": h, "hk": h // max(1, self.sizes["Hq"] // self.sizes["Hk"])}


def _refused(kind: TileList, message: str) -> CuError:
    return CuError(Diagnostic("CU826", message, kind.span))


def _seen(
    keep: Expr, shape: ListShape, names: Mapping[str, Value], params: Params, device: torch.device
) -> tuple[Tensor, Tensor]:
    """[lists, tiles]: is some pair of a list and a tile visible, and are all of them."""
    pairs = shape.per_list * shape.per_tile
    lists_at_once = max(1, MAX_ELEMENTS // (pairs * max(1, shape.tiles)))
    tiles_at_once = max(1, MAX_ELEMENTS // (pairs * lists_at_once))
    tiles = torch.arange(shape.tiles, device=device)
    some: list[Tensor] = []
    every: list[Tensor] = []
    within = torch.arange(shape.per_list, device=device).view(1, -1, 1, 1)
    for lists in torch.arange(shape.lists, device=device).split(lists_at_once):
        i = (lists % shape.per_head * shape.per_list).view(-1, 1, 1, 1) + within
        parts = [_of_tiles(keep, shape, lists, i, part, names, params) for part in tiles.split(tiles_at_once)]
        some.append(torch.cat([part for part, _ in parts], dim=1))
        every.append(torch.cat([part for _, part in parts], dim=1))
    return torch.cat(some), torch.cat(every)


def _of_tiles(
    keep: Expr, shape: ListShape, lists: Tensor, i: Tensor, tiles: Tensor, names: Mapping[str, Value], params: Params
) -> tuple[Tensor, Tensor]:
    """`_seen` of some lists and some tiles, as far as rows i [lists, rows, 1, 1] tell: keys, of lists of query tiles."""
    j = tiles.view(-1, 1) * shape.per_tile + torch.arange(shape.per_tile, device=lists.device)
    last_row, last_key = (length - 1 for length in shape.lengths)
    row, key = map(Name, shape.kind.INDICES)
    here: dict[Expr, Value] = {row: i.clamp_max(last_row).int(), key: j.clamp_max(last_key).int()}
    here |= {Attr(Name("tile"), n): v.view(-1, 1, 1, 1).int() for n, v in shape.tile_fields(lists).items()}
    kept = evaluate(keep, reader(names, params, here))
    if not isinstance(kept, Tensor):
        kept = torch.full((), bool(kept), device=lists.device)
    kept = kept.expand(len(lists), i.shape[1], len(tiles), shape.per_tile) & (j <= last_key)
    if shape.kind is QueryTileList:
        kept = kept & (i <= last_row)
    return kept.any(3).any(1), kept.all(3).all(1)


# ---- what the predicate reads ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Clamped:
    """A captured tensor whose elements outside are those at its edge: what a condition drops may read there."""

    data: Any

    def __getitem__(self, indices: tuple[Tensor | int, ...]) -> Tensor:
        inside = [
            x.clamp(0, size - 1) if isinstance(x, Tensor) else min(max(x, 0), size - 1)
            for x, size in zip(indices, self.data.shape, strict=True)
        ]
        return self.data[tuple(inside)]


def reader(names: Mapping[str, Value], params: Params, here: Mapping[Expr, Value]) -> Callable[[Expr], Any]:
    """What names stand for in a predicate: `here`, then parameters, sizes and constants. Errors of a look-up: CU301."""

    def find(node: Expr) -> Any:
        if node in here:
            return here[node]
        match node:
            case Attr(Name("p"), name) if name in params:
                value = params[name]
                return _Clamped(value) if isinstance(value, Tensor) else value
            case Name(name) if name in names:
                return names[name]
            case _:
                raise CuError(Diagnostic("CU301", "this name has no value where tile lists are made", node.span))

    return find
