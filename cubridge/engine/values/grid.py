"""Which blocks the value engine runs together: those that visit equally many key tiles and mask the same of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cubridge.engine.core.operands import Value, fault
from cubridge.engine.core.sync import Policy
from cubridge.engine.values.launch import Blocks, all_blocks, grid_of_tiles, work_count
from cubridge.engine.values.machine import Code, ValueMachine
from cubridge.ir.nodes import Kernel
from cubridge.ir.region_types import family_of
from cubridge.ir.spec import Shape
from cubridge.ir.tile_shape import query_tile, size_of
from cubridge.ir.vocabulary import SCHEDULE
from cubridge.ir.workers import takes_several


def groups_alike(
    code: Code, params: Mapping[str, Value], names: Mapping[str, Value], grid: tuple[int, int, int]
) -> list[Blocks]:
    """All blocks of a launch, in groups. A guess: blocks that turn out to differ are split further when they run."""
    blocks = all_blocks(grid)
    if not len(blocks):
        return []
    keys = _block_keys(code, params, names, blocks, grid[0])
    return [blocks.take(np.flatnonzero(keys == key)) for key in np.unique(keys)]


def choose_grid(
    code: Code, params: Mapping[str, Value], names: Mapping[str, Value], shape: Shape
) -> tuple[int, int, int]:
    """A grid for a kernel whose caller does not say: of blocks that take several work tiles, two to four each, in few groups."""
    if not takes_several(code.kernel):
        rows = query_tile(code.kernel)
        if rows is None:
            raise fault(
                "CU315", "the grid is not given, and the schedule shows no query tile to find it by", code.kernel
            )
        tiles = -(-shape.Lq // size_of(code.kernel, rows))
        return grid_of_tiles(code.kernel, tiles, shape)
    count = _work_count(code.kernel, params)
    if count < 2:
        return max(count, 1), 1, 1
    alike = _work_keys(code, params, names, count)
    sizes = range(-(-count // 4), -(-count // 2) + 1)
    return min(sizes, key=lambda g: (len(np.unique(_by_block(alike, g), axis=0)), g)), 1, 1


def _work_count(kernel: Kernel, params: Mapping[str, Value]) -> int:
    count = work_count(kernel, params)
    if count is None:
        raise fault("CU315", "no loop over work ends at a parameter: `if work >= p.NAME: break`", kernel)
    return count


def _block_keys(
    code: Code, params: Mapping[str, Value], names: Mapping[str, Value], blocks: Blocks, grid: int
) -> np.ndarray:
    if not code.kernel.schedule.params:
        return _keys(ValueMachine(code, params, names, blocks, grid, Policy()), ())
    count = _work_count(code.kernel, params) if takes_several(code.kernel) else len(blocks)
    table = _by_block(_work_keys(code, params, names, count), grid)
    return np.unique(table, axis=0, return_inverse=True)[1].ravel()[blocks.x]


def _work_keys(code: Code, params: Mapping[str, Value], names: Mapping[str, Value], count: int) -> np.ndarray:
    if not count:
        return np.zeros(0, dtype=np.int64)
    work = np.arange(count, dtype=np.int64)
    return _keys(ValueMachine(code, params, names, Blocks(work, work * 0, work * 0), count, Policy()), (work,))


def _by_block(keys: np.ndarray, grid: int) -> np.ndarray:
    """[blocks, turns]: the keys of each block's work tiles, -1 where it has none left."""
    turns = -(-len(keys) // grid)
    padded = np.full(turns * grid, -1)
    padded[: len(keys)] = keys
    return padded.reshape(turns, grid).T


def _keys(machine: ValueMachine, work: tuple[np.ndarray, ...]) -> np.ndarray:
    """A number for each work tile: equal where count and masks of its sequence are."""
    node, walk = machine.kernel.schedule, family_of(machine.kernel).walk
    functions = machine.compiled.functions

    def call(name: str, *args: Value) -> Value:
        return machine.call_function(machine.agents[-1], functions[name], name, args, node)

    blocks = len(machine.blocks)
    if not walk:
        return np.zeros(blocks, dtype=np.int64)
    sequence = call(walk[0], call(SCHEDULE, *work))
    count = np.broadcast_to(np.asarray(call(walk[1], sequence)), (blocks,))
    columns = [count]
    for t in range(int(count.max())):
        masked = np.broadcast_to(np.asarray(call(walk[3], sequence, t)), (blocks,))
        columns.append(np.where(t < count, masked, False).astype(np.int64))
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].ravel()
