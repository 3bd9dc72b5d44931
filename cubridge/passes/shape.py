"""The tile sizes of a kernel, read from how it uses them and not from the names that it gives them."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.ir.nodes import Assign, Attr, Binary, Expr, IntLit, Kernel, Name, RegionCall, RegisterTile
from cubridge.ir.walk import walk
from cubridge.passes.base import fault


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows of a query tile and keys of a key tile, as the kernel's constants."""

    queries: Expr
    keys: Expr


def tile_shape(kernel: Kernel) -> TileShape:
    """Errors: CU510 where the schedule shows no query tile, or the tiles given to `score` no key tile."""
    return TileShape(_queries(kernel), _keys(kernel))


def _queries(kernel: Kernel) -> Expr:
    """What the first row of a query tile is a multiple of."""
    constants = {c.name for c in kernel.constants}
    for statement in kernel.schedule.body:
        match statement:
            case Assign(Attr(Name("tile"), "q_start"), Binary("*", left, right)):
                for size in (right, left):
                    if isinstance(size, IntLit) or (isinstance(size, Name) and size.id in constants):
                        return size
            case _:
                pass
    message = "the schedule does not set `tile.q_start` to a number times the size of a query tile"
    raise fault("CU510", message, kernel.schedule.span)


def _keys(kernel: Kernel) -> Expr:
    """The columns of the score tile."""
    nodes = [node for statement in kernel.body for node in walk(statement)]
    scores = {n.args[0] for n in nodes if isinstance(n, RegionCall) and n.region == "score"}
    columns = [n.cols for n in nodes if isinstance(n, RegisterTile) and Name(n.name) in scores]
    if not columns or columns[0] is None:
        raise fault("CU510", "no call of `score` shows the size of a key tile", kernel.span)
    return columns[0]
