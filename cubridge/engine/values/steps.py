"""The value engine a statement at a time: what each worker of one block does, and what the tiles then hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.deadlock import deadlock
from cubridge.engine.core.operands import Lanes, Ring, Value
from cubridge.engine.core.sync import Policy, agent_names
from cubridge.engine.threads import one_thread
from cubridge.engine.values.engine import prepare
from cubridge.engine.values.grid import choose_grid
from cubridge.engine.values.launch import Launch, all_blocks, host_names, parameters
from cubridge.engine.values.machine import Team
from cubridge.engine.values.run import ValueRun
from cubridge.engine.values.tiles import RowValues, TeamTile
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Break, For, If, Kernel, Loop, Stmt, Tile
from cubridge.ir.printer import print_stmts

Seen: TypeAlias = Tensor | int | float | bool

COPIES: Final = "copies"
"""The worker that completes asynchronous copies."""
_FLOW: Final = (If, For, Loop, Break)
_ONE_STEP: Final = Policy(quantum=1)


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """A statement that `worker` has run. `changed`: names whose values it set; `values`: of all that the worker sees after it, as
    they are then. A register tile is [rows, columns], a value of each row [rows], a partial sum [rows, 4 lanes], a slot of shared
    memory `smem.k[0]` [rows, columns], what a store writes `p.o` [rows, columns]; numbers are numbers.

    What nobody has written, or a copy or gemm on its way will write, is NaN."""

    number: int
    worker: str
    statement: Stmt
    changed: tuple[str, ...]
    values: Mapping[str, Seen] = field(repr=False)

    def __getitem__(self, name: str) -> Seen:
        return self.values[name]

    @property
    def text(self) -> str:
        """The statement in a line."""
        return print_stmts((self.statement,)).strip().splitlines()[0]

    def __str__(self) -> str:
        changes = f"  -> {', '.join(self.changed)}" if self.changed else ""
        return f"{self.worker:12} {self.text}{changes}"


def trace_values(
    kernel: Kernel, inputs: tuple[Tensor, Tensor, Tensor], launch: Launch, block: int = 0
) -> Iterator[TraceEvent]:
    """What one block of a launch does: each worker as far as it gets, copies when nobody can go on.
    Errors: as `run_values`, when the statement comes that fails; CU111 for a block that the launch does not have."""
    with one_thread(), np.errstate(divide="raise", invalid="raise"):
        params = parameters(kernel, dict(zip("qkv", inputs, strict=True)), launch)
        names = host_names(kernel, launch)
        code = prepare(kernel)
        grid = launch.grid or choose_grid(code, params, names, launch.shape)
        blocks = all_blocks(grid)
        if not 0 <= block < len(blocks):
            raise CuError(Diagnostic("CU111", f"there is no block {block} of {len(blocks)}"))
        machine = ValueRun(code, params, names, blocks.take(np.array([block])), grid[0], _ONE_STEP)
    memory: dict[str, Seen] = {}
    registers: dict[str, dict[str, Seen]] = {}
    seen = 0
    for number, (team, stmt) in enumerate(_steps(machine)):
        worker = COPIES if team is None else team.label
        shared, own = _shared(machine), {} if team is None else _registers(machine, team)
        changed = [*_changed(memory, shared), *_changed(registers.get(worker, {}), own)]
        memory, registers[worker] = shared, own
        stored = {f"p.{s.name}": _columns(s.data[0]) for s in machine.stores[seen:]}
        seen = len(machine.stores)
        yield TraceEvent(number, worker, stmt, (*changed, *stored), shared | own | stored)


def _steps(machine: ValueRun) -> Iterator[tuple[Team | None, Stmt]]:
    """Statements in the order in which they run, without control flow; None: a copy that has arrived."""
    while not all(team.done for team in machine.agents):
        moved = False
        for team in machine.agents:
            while not team.done:
                at = team.pc
                with one_thread(), np.errstate(divide="raise", invalid="raise"):
                    if not machine.advance(team):
                        break
                moved = True
                if at < len(machine.code) and not isinstance(machine.code[at].stmt, _FLOW):
                    yield team, machine.code[at].stmt
        if not moved:
            if not machine.landings:
                raise CuError(deadlock(machine))
            stmt = machine.landings[0].stmt
            machine.land_one()
            yield None, stmt


def _shared(machine: ValueRun) -> dict[str, Seen]:
    slots = {name: machine.size(f.type.slots) for name, f in machine.shared.items() if isinstance(f.type, Tile)}
    found = {f"smem.{name}": _shown(value) for name, value in machine.scalars.items()}
    for (name, slot), data in machine.memory.items():
        found[f"smem.{name}[{slot}]" if slots[name] > 1 else f"smem.{name}"] = data[0]
    return found


def _registers(machine: ValueRun, team: Team) -> dict[str, Seen]:
    """The locals of a worker, without what it was given."""
    given = machine.globals.keys() | agent_names(team).keys()
    found: dict[str, Seen] = {}
    for name, value in team.names.items():
        if name not in given:
            parts = _parts(value)
            found |= {name: _shown(value)} if parts is None else {f"{name}.{n}": _shown(x) for n, x in parts.items()}
    return found


def _parts(value: Value) -> Mapping[str, Value] | None:
    """Of what has fields: the row state, a work tile, a key sequence, a ring."""
    match value:
        case RowValues(fields):
            return fields
        case SimpleNamespace():
            return vars(value)
        case Ring():
            return {"slot": value.slot, "phase": value.phase}
        case _:
            return None


def _shown(value: Value) -> Seen:
    """Of the one block."""
    match value:
        case TeamTile():
            return _columns(value.flat[0])
        case Tensor() if value.dim() == _ROW_AXES:
            return _columns(value[0].flatten(0, 2))
        case Lanes():
            return torch.tensor(value.values)
        case np.ndarray():
            return value.reshape(-1)[0].item()
        case np.generic():
            return value.item()
        case _:
            return value


_ROW_AXES: Final = 5
"""Blocks, warps, fragment rows, 8, columns."""


def _columns(rows: Tensor) -> Tensor:
    return rows[:, 0] if rows.shape[1] == 1 else rows


def _changed(before: Mapping[str, Seen], after: Mapping[str, Seen]) -> list[str]:
    return [name for name, value in after.items() if name not in before or not _is_same(before[name], value)]


def _is_same(a: Seen, b: Seen) -> bool:
    """Of tensors, the same memory or the same numbers: the engine writes into none that it has made."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and (a.data_ptr() == b.data_ptr() or torch.equal(a, b))
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return False
    return type(a) is type(b) and a == b
