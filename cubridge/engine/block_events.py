"""What one block of a launch does by its CuIR: the value engine, with what it copies, reads and stores written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from torch import Tensor

from cubridge.engine.core.code import compile_body
from cubridge.engine.core.operands import GlobalRef, SharedRef, Value
from cubridge.engine.core.scheduler import run_agents
from cubridge.engine.core.sync import IN_TURN, Policy
from cubridge.engine.values.engine import prepare
from cubridge.engine.values.launch import Blocks, GlobalTensor, Launch, host_names, parameters
from cubridge.engine.values.machine import Code, Team
from cubridge.engine.values.run import ValueRun
from cubridge.ir.block_events import Act, Interval, TileOf, Turn
from cubridge.ir.nodes import BlockSync, Copy, CopyAsync, CpAsyncCommit, CpAsyncWait, Gemm, Kernel, Stmt, Store

Kind = Literal["copy", "copy_async", "read", "store"]


def block_events(
    kernel: Kernel, inputs: tuple[Tensor, Tensor, Tensor], launch: Launch, blocks: list[tuple[int, int, int]]
) -> dict[tuple[int, int, int], tuple[Interval, ...]]:
    """The events of each of `blocks`, of a kernel whose threads are one team. Errors: CU3xx, CU25x as `run_values`."""
    params = parameters(kernel, dict(zip("qkv", inputs, strict=True)), launch)
    names = host_names(kernel, launch)
    code = replace(prepare(kernel), body=compile_body(kernel, EventRun))
    grid = launch.grid or (1, 1, 1)
    return {block: _events(code, params, names, block, grid[0]) for block in blocks}


def _events(
    code: Code, params: Mapping[str, Value], names: Mapping[str, Value], block: tuple[int, int, int], grid: int
) -> tuple[Interval, ...]:
    x, y, z = (np.array([n], dtype=np.int64) for n in block)
    machine = EventRun(code, params, names, Blocks(x, y, z), grid, IN_TURN)
    run_agents(machine)
    return (*machine.intervals, Interval(tuple(machine.acts), None))


class EventRun(ValueRun):
    """One block. Slots of shared memory are numbered as they are first filled."""

    def __init__(
        self,
        code: Code,
        params: Mapping[str, Value],
        names: Mapping[str, Value],
        blocks: Blocks,
        grid: int,
        policy: Policy,
    ) -> None:
        super().__init__(code, params, names, blocks, grid, policy)
        self.intervals: list[Interval] = []
        self.acts: list[Act] = []
        self.contents: dict[tuple[str, int], TileOf] = {}
        self.slots: dict[tuple[str, int], int] = {}

    def act(self, kind: Kind, tile: TileOf, key: tuple[str, int] | None, stmt: Stmt) -> None:
        place = 0 if key is None else self.slots.setdefault(key, len(self.slots))
        self.acts.append(Act(kind, tile, place, stmt.span))

    def turn(self, turn: Turn) -> None:
        self.intervals.append(Interval(tuple(self.acts), turn))
        self.acts = []

    def tile_of(self, view: Value, row: Value, rows: int) -> TileOf:
        assert isinstance(view, GlobalRef)
        tensor = self.params[view.name]
        assert isinstance(tensor, GlobalTensor)
        b, h, first = (int(self.one(np.asarray(x).reshape(-1))) for x in (*view.indices, row))
        return TileOf(view.name, b, h, first, rows, max(0, min(rows, tensor.data.shape[2] - first - tensor.is_input)))

    def filled(self, kind: Kind, stmt: Copy | CopyAsync, dst: Value, src: Value, row: Value) -> None:
        assert isinstance(dst, SharedRef)
        self.contents[dst.key] = self.tile_of(src, row, self.slot_shape(dst)[1][1])
        self.act(kind, self.contents[dst.key], dst.key, stmt)

    def copy_async(self, agent: Team, stmt: CopyAsync, dst: Value, src: Value, row: Value, signal: Value) -> None:
        super().copy_async(agent, stmt, dst, src, row, signal)
        self.filled("copy_async", stmt, dst, src, row)

    def copy(self, agent: Team, stmt: Copy, dst: Value, src: Value, row: Value) -> None:
        super().copy(agent, stmt, dst, src, row)
        self.filled("copy", stmt, dst, src, row)

    def gemm(self, agent: Team, stmt: Gemm, dst: Value, a: Value, b: Value) -> None:
        super().gemm(agent, stmt, dst, a, b)
        for operand in (a, b):
            if isinstance(operand, SharedRef) and operand.key in self.contents:
                self.act("read", self.contents[operand.key], operand.key, stmt)

    def store(self, agent: Team, stmt: Store, dst: Value, row: Value, src: Value, column: Value) -> None:
        super().store(agent, stmt, dst, row, src, column)
        tile = self.tile_of(dst, row, self.tile(src, stmt).flat.shape[1])
        self.act("store", replace(tile, rows=tile.kept), None, stmt)

    def commit(self, agent: Team, stmt: CpAsyncCommit) -> None:
        super().commit(agent, stmt)
        self.turn(Turn("commit", 0, stmt.span))

    def wait_group(self, agent: Team, stmt: CpAsyncWait, pending: Value) -> None:
        super().wait_group(agent, stmt, pending)
        self.turn(Turn("wait_group", self.decide_int(pending, stmt), stmt.span))

    def block_sync(self, agent: Team, stmt: BlockSync) -> bool | None:
        waits = super().block_sync(agent, stmt)
        if not waits:
            self.turn(Turn("block_sync", 0, stmt.span))
        return waits
