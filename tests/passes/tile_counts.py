"""Key tiles of a kernel's query tiles, counted from its key sequence and from the mask itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cubridge.engine.tile_lists import Value, tile_lists
from cubridge.ir.evaluate import evaluate, evaluate_number
from cubridge.ir.nodes import Attr, Expr, Kernel, Name, Scalar, TileList
from cubridge.ir.spec import Shape
from cubridge.passes.tile_check import visits

Names = dict[Expr, Value]


@dataclass(frozen=True, slots=True)
class Counts:
    """Over all query tiles: key tiles seen whole, in part, not at all."""

    full: int
    masked: int
    empty: int


def mask_tensor(mask: Expr, shape: Shape, values: dict[str, torch.Tensor | int | float]) -> torch.Tensor:
    """The mask of batch 0 and head 0 as [Lq, Lk]."""
    names = {"i": torch.arange(shape.Lq)[:, None], "j": torch.arange(shape.Lk)[None, :], "h": 0, "b": 0}
    scope = {**shape.sizes(), **names, **values}
    seen = evaluate(mask, lambda node: scope[node.id])  # pyright: ignore
    return torch.as_tensor(seen, dtype=torch.bool).expand(shape.Lq, shape.Lk)


def by_mask(seen: torch.Tensor, rows: int, keys: int) -> Counts:
    lq, lk = seen.shape
    padded = torch.zeros(-(-lq // rows) * rows, -(-lk // keys) * keys, dtype=torch.bool)
    padded[:lq, :lk] = seen
    padded[lq:] = padded[lq - 1]  # rows past the end see nothing new
    tiles = padded.view(padded.shape[0] // rows, rows, padded.shape[1] // keys, keys)
    some, every = tiles.any(3).any(1), tiles.all(3).all(1)
    return Counts(int(every.sum()), int((some & ~every).sum()), int((~some).sum()))


def by_sequence(kernel: Kernel, shape: Shape, values: dict[str, Value]) -> Counts:
    full = masked = 0
    rows, keys = int(kernel.constant("BLOCK_Q")), int(kernel.constant("BLOCK_KV"))
    for q_start in range(0, shape.Lq, rows):
        tiles = visits(kernel, names_of(kernel, shape, q_start, values))
        assert len({v.tile for v in tiles}) == len(tiles)
        masked += sum(v.masked for v in tiles)
        full += sum(not v.masked for v in tiles)
    return Counts(full, masked, -(-shape.Lq // rows) * -(-shape.Lk // keys) - full - masked)


def names_of(kernel: Kernel, shape: Shape, q_start: int, values: dict[str, Value]) -> Names:
    """What a key sequence of batch 0 and head 0 reads; a value per batch or head is in the tile's field of its name."""
    names: Names = {Name(n): v for n, v in shape.sizes().items()}
    names |= {Name(c.name): int(c.value) for c in kernel.constants}
    names |= {Attr(Name("tile"), n): v for n, v in (("q_start", q_start), ("h", 0), ("b", 0), ("hk", 0))}
    for name, given in values.items():
        scalar = int(given.flatten()[0]) if isinstance(given, torch.Tensor) else int(given)
        names |= {Attr(Name("p"), name): scalar, Attr(Name("tile"), name): scalar}
    return names | _lists(kernel, shape, values)


def _lists(kernel: Kernel, shape: Shape, values: dict[str, Value]) -> Names:
    """The lists of key tiles that the kernel walks, and the rows that each is for."""
    known = {**shape.sizes(), **kernel.constant_values}
    kinds = {f.name: f.type for f in kernel.params if isinstance(f.type, TileList)}
    hosts = {f.name: f.type.host for f in kernel.params if isinstance(f.type, Scalar)} if kinds else {}
    params = {**values, **{n: evaluate_number(h, {**values, **known}) for n, h in hosts.items() if h is not None}}
    lists = {n: tile_lists(kind, known, params, torch.device("cpu")) for n, kind in kinds.items()}
    return {Attr(Name("p"), name): value for name, value in (*params.items(), *lists.items())} if lists else {}
