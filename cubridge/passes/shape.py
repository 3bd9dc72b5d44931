"""The tile sizes of a kernel, read from how it uses them and not from the names that it gives them."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.ir.nodes import Assign, Attr, Binary, Expr, Kernel, Name, RegionCall
from cubridge.ir.walk import walk
from cubridge.passes.base import fault


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows of a query tile and keys of a key tile, as the kernel's constants."""

    queries: Expr
    keys: Expr


def tile_shape(kernel: Kernel) -> TileShape:
    """Errors: CU510 where the schedule or the calls of `score` show no tile size."""
    return TileShape(_queries(kernel), _keys(kernel))


def _queries(kernel: Kernel) -> Expr:
    for statement in kernel.schedule.body:
        match statement:
            case Assign(Attr(Name("tile"), "q_start"), Binary("*", _, size)):
                return size
            case _:
                pass
    raise fault("CU510", "the schedule sets `tile.q_start` to no multiple of a tile size", kernel.schedule.span)


def _keys(kernel: Kernel) -> Expr:
    for statement in kernel.body:
        for node in walk(statement):
            match node:
                case RegionCall("score", (_, Binary("*", _, size), *_)):
                    return size
                case _:
                    pass
    raise fault("CU510", "no call of `score` shows the size of a key tile", kernel.span)
