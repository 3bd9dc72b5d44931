"""The tile sizes of a kernel, as expressions that rewrites may use."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.ir.nodes import Expr, Kernel
from cubridge.ir.tile_shape import key_tile, query_tile
from cubridge.passes.base import fault


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows of a query tile and keys of a key tile, as the kernel's constants."""

    queries: Expr
    keys: Expr


def tile_shape(kernel: Kernel) -> TileShape:
    """Errors: CU510 where the schedule shows no query tile, or the tiles given to `score` no key tile."""
    queries, keys = query_tile(kernel), key_tile(kernel)
    if queries is None:
        message = "the schedule does not set `tile.q_start` to a number times the size of a query tile"
        raise fault("CU510", message, kernel.schedule.span)
    if keys is None:
        raise fault("CU510", "no call of `score` shows the size of a key tile", kernel.span)
    return TileShape(queries, keys)
