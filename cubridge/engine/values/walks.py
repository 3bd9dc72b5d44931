"""The work of a launch without its tiles: which query tiles there are, in which order, and which key tiles each of them visits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from cubridge.engine.core.operands import Value, fault
from cubridge.engine.core.sync import IN_TURN
from cubridge.engine.values.engine import prepare
from cubridge.engine.values.launch import Launch, all_blocks, grid_of_tiles, host_names, parameters, work_count
from cubridge.engine.values.machine import Team
from cubridge.engine.values.run import ValueRun
from cubridge.ir.nodes import Counters, Global, Kernel, TensorMap
from cubridge.ir.tile_shape import query_tile, size_of


@dataclass(frozen=True, slots=True)
class Walk:
    """One work tile. `steps`: its key tiles in turn, and whether each is masked."""

    b: int
    h: int
    q_start: int
    steps: tuple[tuple[int, bool], ...]


def walks(kernel: Kernel, launch: Launch) -> tuple[Walk, ...]:
    """The work tiles of a launch in the order of the schedule; of a kernel whose blocks take one each, in that of the blocks.
    Errors: CU301 where something has no value; as `parameters` of captured tensors."""
    given = tuple(f for f in kernel.params if not isinstance(f.type, Global | TensorMap | Counters))
    params = parameters(replace(kernel, params=given), {}, launch)
    names = host_names(kernel, launch)
    grid = _grid(kernel, params, launch)
    machine = ValueRun(prepare(kernel), params, names, all_blocks(grid), grid[0], IN_TURN)
    return tuple(_walks(machine, kernel))


def _grid(kernel: Kernel, params: Mapping[str, Value], launch: Launch) -> tuple[int, int, int]:
    """A block for each work tile."""
    count = work_count(kernel, params)
    rows = query_tile(kernel)
    if count is not None:
        return count, 1, 1
    if rows is None:
        raise fault("CU301", "the kernel does not show the size of its query tiles", kernel)
    shape = launch.shape
    tiles = -(-shape.Lq // size_of(kernel, rows))
    return grid_of_tiles(kernel, tiles, shape)


def _walks(machine: ValueRun, kernel: Kernel) -> Iterator[Walk]:
    team, blocks = machine.agents[-1], len(machine.blocks)
    work = (machine.blocks.x,) if kernel.schedule.params else ()
    tile = _call(machine, team, "work_tile", work)
    keys = _call(machine, team, "key_sequence", (tile,))
    counts = _of_block(_call(machine, team, "key_count", (keys,)), blocks)
    most = int(counts.max(initial=0))
    steps = [
        (_step(machine, team, "key_tile", keys, t), _step(machine, team, "key_masked", keys, t)) for t in range(most)
    ]
    b, h, q_start = (_of_block(getattr(tile, name), blocks) for name in ("b", "h", "q_start"))
    for x in range(blocks):
        own = tuple((int(n[x]), bool(masked[x])) for n, masked in steps[: int(counts[x])])
        yield Walk(int(b[x]), int(h[x]), int(q_start[x]), own)


def _step(machine: ValueRun, team: Team, name: str, keys: SimpleNamespace, t: int) -> np.ndarray:
    """Of the step t of every block; of those that have fewer, at their last one."""
    count = _of_block(_call(machine, team, "key_count", (keys,)), len(machine.blocks))
    return _of_block(_call(machine, team, name, (keys, np.minimum(t, np.maximum(count - 1, 0)))), len(machine.blocks))


def _call(machine: ValueRun, team: Team, name: str, args: tuple[Value, ...]) -> Value:
    return machine.call(team, name, args, machine.kernel)  # pyright: ignore[reportArgumentType]


def _of_block(value: Value, blocks: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(value), (blocks,))
