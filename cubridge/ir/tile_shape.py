"""The sizes and the element type of a kernel's tiles, read from how it uses them and not from the names that it gives them."""

from __future__ import annotations

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Binary,
    CopyAsync,
    Expr,
    Function,
    Global,
    IntLit,
    Kernel,
    Name,
    RegionCall,
    RegisterTile,
    TensorMap,
    Tile,
)
from cubridge.ir.operands import shared_name
from cubridge.ir.region_types import family_of
from cubridge.ir.types import DTYPES, Axis
from cubridge.ir.walk import field_of, walk


def query_tile(kernel: Kernel) -> Expr | None:
    """Rows of a query tile: the constant that the schedule multiplies into `tile.q_start`, or, where a work tile is one of keys,
    the columns of the tile that `score` gets; None where neither is to be seen."""
    return _columns(kernel, "score") if _walks_queries(kernel) else _of_schedule(kernel)


def _walks_queries(kernel: Kernel) -> bool:
    return family_of(kernel).rows is Axis.KEY


def _of_schedule(kernel: Kernel) -> Expr | None:
    return rows_of(kernel.schedule, frozenset(c.name for c in kernel.constants))


def rows_of(schedule: Function, constants: frozenset[str]) -> Expr | None:
    """The rows of a work tile, as its schedule says them."""
    for statement in schedule.body:
        match statement:
            case Assign(Attr(Name("tile"), "q_start" | "kv_start"), Binary("*", left, right)):
                for size in (right, left):
                    if isinstance(size, IntLit) or (isinstance(size, Name) and size.id in constants):
                        return size
            case _:
                pass
    return None


def key_tile(kernel: Kernel) -> Expr | None:
    """Keys of a key tile: the columns of the tile that `score` gets, or, where a work tile is one, what its schedule says; None
    where neither is to be seen."""
    return _of_schedule(kernel) if _walks_queries(kernel) else _columns(kernel, "score")


def head_dim(kernel: Kernel) -> int:
    """The head dim of this instantiation: the columns of the tile that `row_finalize` gets, or of the tiles that it copies.
    Errors: CU301 if they are not a number; 0 where there is no such tile."""
    columns = _columns(kernel, "row_finalize") or _copied_columns(kernel)
    return 0 if columns is None else size_of(kernel, columns)


def _copied_columns(kernel: Kernel) -> Expr | None:
    tiles = {f.name: f.type for f in kernel.shared if isinstance(f.type, Tile)}
    mapped = {f.name for f in kernel.params if isinstance(f.type, TensorMap)}
    copies = (n for s in kernel.body for n in walk(s) if isinstance(n, CopyAsync) and field_of(n.src) in mapped)
    return next((tiles[name].cols for c in copies if (name := shared_name(c.dst)) in tiles), None)


def dtype_of(kernel: Kernel) -> str:
    """Of the tiles in shared memory, or else of the tensors, as the command line names it. Errors: CU209 where none is of such a
    type."""
    tiles = {f.type.dtype for f in kernel.shared if isinstance(f.type, Tile)}
    tiles = tiles or {f.type.dtype for f in kernel.params if isinstance(f.type, Global)}
    found = next((name for name, dtype in DTYPES.items() if dtype in tiles), None)
    if found is None:
        raise CuError(Diagnostic("CU209", f"no tile in shared memory is {' or '.join(DTYPES)}", kernel.span))
    return found


def size_of(kernel: Kernel, size: Expr) -> int:
    """A size in numbers. Errors: CU301."""
    return int(evaluate_number(size, kernel.constant_values))


def _columns(kernel: Kernel, region: str) -> Expr | None:
    """The columns of the register tile that calls of a region are given first."""
    nodes = [node for statement in kernel.body for node in walk(statement)]
    tiles = {n.args[0] for n in nodes if isinstance(n, RegionCall) and n.region == region}
    return next((n.cols for n in nodes if isinstance(n, RegisterTile) and Name(n.name) in tiles), None)
