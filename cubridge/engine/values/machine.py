"""The machine of the value engine: teams that step over many blocks at once, with the data of registers and shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.barriers import BarrierMachine
from cubridge.engine.core.code import Instruction
from cubridge.engine.core.expressions import Closure, compile_expr
from cubridge.engine.core.operands import Value, fault
from cubridge.engine.core.sync import Agent, Policy, agent_names
from cubridge.engine.values.gather import gather_checked
from cubridge.engine.values.launch import Blocks
from cubridge.engine.values.regions import Env, Item, Run, as_item
from cubridge.engine.values.tiles import FRAGMENT, LANES, TORCH, RowValues, TeamTile, poison
from cubridge.ir.coordinates import of_block
from cubridge.ir.diagnostics import CuError, Note
from cubridge.ir.evaluate import apply
from cubridge.ir.hardware import WARP, WARPGROUP
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Cast,
    Expr,
    Function,
    Gemm,
    Kernel,
    Name,
    Node,
    Partial,
    Record,
    RegionCall,
    RegisterTile,
    Row,
    SharedValue,
    Stmt,
    Zero,
)  # fmt: skip
from cubridge.ir.region_types import family_of
from cubridge.ir.tile_shape import query_tile
from cubridge.ir.types import Axis, DType


class Split(Exception):
    """Blocks of one run go different ways; `values` says which, [blocks]."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.values = values


@dataclass(frozen=True, slots=True)
class Code:
    """A kernel prepared for the value engine."""

    kernel: Kernel
    body: tuple[Instruction, ...]
    regions: Mapping[str, Run]
    functions: Mapping[str, ScalarFunction]
    row_origin: Closure


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function over numbers: `work_tile`, `tile_setup`, `key_sequence` and the rest of the key range."""

    params: tuple[str, ...]
    steps: tuple[tuple[Stmt, Closure | None], ...]  # None: a call of `tile_setup`
    result: Closure | Mapping[str, Closure] | None


def compile_function(function: Function) -> ScalarFunction:
    result = function.result
    if isinstance(result, Record):
        compiled = {a.name: compile_expr(a.value) for a in result.fields}
    else:
        compiled = None if result is None else compile_expr(result)
    steps = tuple((s, compile_expr(s.value) if isinstance(s, Assign) else None) for s in function.body)
    return ScalarFunction(function.params, steps, compiled)


class Team(Agent):
    """The threads that share register tiles. `groups`: what is in flight, a list for each group, the open one last."""

    __slots__ = ("bulk", "copies", "gemms", "index")

    def __init__(self, machine: ValueMachine, index: int, first: int, threads: int) -> None:
        super().__init__(machine, f"warpgroup {index}" if threads == WARPGROUP else "the block", first, threads)  # pyright: ignore[reportArgumentType]
        self.index = index
        self.copies: list[list[tuple[tuple[str, int], Tensor]]] = [[]]
        self.gemms: list[list[PendingGemm]] = [[]]
        self.bulk: list[list[Callable[[], None]]] = [[]]  # what each copy does when it has read its tile


@dataclass(frozen=True, slots=True)
class PendingGemm:
    """An asynchronous gemm. Its operands are read when it completes: who changes them before that changes the result."""

    stmt: Gemm
    dst: TeamTile
    before: Tensor
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows from `first` on and columns from `column` on of a view of `name`, which become `data` [blocks, rows, columns]."""

    name: str
    view: tuple[Value, ...]
    first: np.ndarray
    column: int
    data: Tensor


class Frame:
    """The names of one call of a scalar function, in the place of the team that calls it."""

    __slots__ = ("machine", "names", "team")

    def __init__(self, machine: ValueMachine, team: Team, names: dict[str, Value]) -> None:
        self.machine = machine
        self.team = team
        self.names = names


ORIGINS = {Axis.ROW: "q_start", Axis.KEY: "kv_start"}
"""Where rows of a work tile, and columns of a call, begin: a field of the tile, and an argument."""


class Watch(Protocol):
    """Looks on while a kernel runs; `start` says that a group of blocks begins, perhaps anew."""

    def start(self) -> None: ...

    def see(self, machine: ValueMachine, team: Team, stmt: RegionCall, args: Mapping[str, Value]) -> None:
        """A region has been called."""
        ...


class ValueMachine(BarrierMachine[Team]):
    """One run of a kernel for blocks whose control is alike."""

    max_steps: ClassVar[int] = 100_000

    def __init__(
        self,
        code: Code,
        params: Mapping[str, Value],
        names: Mapping[str, Value],
        blocks: Blocks,
        grid: int,
        policy: Policy,
    ) -> None:
        super().__init__(code.kernel, code.body, params, policy)
        self.compiled = code
        self.blocks = blocks
        self.grid = grid
        self.globals = dict(names) | of_block((blocks.x, blocks.y, blocks.z), grid)
        threads = self.size(code.kernel.threads)
        size = threads if code.kernel.team == "block" else WARPGROUP
        self.agents = [self.new_team(x, x * size, size) for x in range(threads // size)]
        self.memory: dict[tuple[str, int], Tensor] = {}
        self.scalars: dict[str, Value] = {}
        self.stores: list[Stored] = []
        self.sums: list[tuple[str, tuple[Value, ...], Tensor]] = []
        self.draws = 0
        self.watch: Watch | None = None

    def new_team(self, index: int, first: int, threads: int) -> Team:
        team = Team(self, index, first, threads)
        team.names |= self.globals | agent_names(team)
        return team

    # ---- control alike in all blocks ----

    def decide(self, value: Value, node: Node) -> bool:
        return bool(self.one(value))

    def decide_int(self, value: Value, node: Node) -> int:
        value = self.one(value)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise fault("CU301", "this is not one whole number", node)
        return int(value)

    def one(self, value: Value) -> Value:
        if not isinstance(value, np.ndarray):
            return value
        if not (value == value[0]).all():
            raise Split(value)
        return value[0].item()

    # ---- numbers ----

    def call(self, agent: Team | Frame, fn: str, args: tuple[Value, ...], node: Expr) -> Value:
        function = self.compiled.functions.get(fn)
        team = agent.team if isinstance(agent, Frame) else agent
        if fn == "tile_at":
            tile = SimpleNamespace(**dict(zip(family_of(self.kernel).coordinates, args, strict=True)))
            self.set_up(team, tile)
            return tile
        if function is not None:
            return self.call_function(team, function, fn, args, node)
        return apply(fn, args, node)

    def call_function(
        self, team: Team, function: ScalarFunction, name: str, args: tuple[Value, ...], node: Node
    ) -> Value:
        if len(args) != len(function.params):
            raise fault("CU301", f"`{name}` takes {len(function.params)} arguments", node)
        frame = Frame(self, team, self.globals | dict(zip(function.params, args, strict=True)))
        frame.names.setdefault("tile", SimpleNamespace())
        for stmt, value in function.steps:
            self.scalar_step(frame, stmt, value)
        if function.result is None:
            return None
        if isinstance(function.result, Mapping):
            return SimpleNamespace(**{k: closure(frame) for k, closure in function.result.items()})
        return function.result(frame)

    def scalar_step(self, frame: Frame, stmt: Stmt, value: Closure | None) -> None:
        match stmt:
            case Assign(Name(name)) if value is not None:
                frame.names[name] = value(frame)
            case Assign(Attr(Name("tile"), name)) if value is not None:
                setattr(frame.names["tile"], name, value(frame))
            case RegionCall("tile_setup", (Name("tile"),)):
                self.set_up(frame.team, frame.names["tile"])
            case _:
                raise fault("CU301", "a function over numbers does not have this statement", stmt)

    def set_up(self, team: Team, tile: SimpleNamespace) -> None:
        """`tile_setup` fills `tile`: numbers for each block, and, where the tile state has row fields, values for each row."""
        names = dict(self.globals)
        rows = family_of(self.kernel).rows
        if hasattr(tile, ORIGINS[rows]):
            names[rows.value] = as_item(getattr(tile, ORIGINS[rows])) + self.team_rows(team)
        try:
            self.compiled.regions["tile_setup"](Env(self, names, {}, tile))
        except CuError as error:
            note = Note(f"{team.label} calls it for rows from {int(self.team_rows(team).min())} on")
            first, *others = error.diagnostics
            raise CuError(replace(first, notes=(*first.notes, note)), *others) from None
        blocks, warps = len(self.blocks), team.threads // WARP
        for declared in self.kernel.tile_state:
            value = getattr(tile, declared.name, None)
            if isinstance(declared.type, Row):
                if value is None:
                    raise fault("CU255", f"`tile_setup` does not set `{declared.name}`", declared)
                item = torch.as_tensor(value, dtype=TORCH[declared.type.dtype])
                setattr(tile, declared.name, item.expand(blocks, warps, self.fragment_rows, FRAGMENT, 1))
            elif isinstance(value, Tensor):
                setattr(tile, declared.name, value.reshape(-1).expand(blocks).numpy())

    def team_rows(self, team: Team) -> Tensor:
        """The rows of a team's register tiles, counted from the first row of the query tile: [1, warps, fragment rows, 8, 1]."""
        shape = (1, team.threads // WARP, self.fragment_rows, FRAGMENT, 1)
        origin = self.decide_int(self.compiled.row_origin(team), self.kernel)
        return torch.arange(shape[1] * shape[2] * FRAGMENT, dtype=torch.int32).view(shape) + origin

    def element(self, name: str, indices: tuple[Value, ...], node: Expr) -> Value:
        base = self.captured(name, node)
        tensors = [torch.as_tensor(np.asarray(x)) for x in indices]
        value = gather_checked(base, name, tensors, [], node)
        return value.item() if value.ndim == 0 else value.numpy()

    def captured(self, name: str, node: Node) -> Tensor:
        base = self.param(name, node)
        if not isinstance(base, Tensor):
            raise fault("CU301", f"`{name}` is not a captured tensor", node)
        return base

    def gather(self, name: str, indices: list[Item], guards: list[Item], node: Expr) -> Item:
        value = gather_checked(self.captured(name, node), name, [torch.as_tensor(x) for x in indices], guards, node)
        return value if value.ndim else value.item()

    def atomic_add(self, agent: Team, name: str, index: Value, amount: Value, node: Expr) -> Value:
        if self.param(name, node) is None:
            raise fault("CU266", f"`{name}` is absent in this launch", node)
        self.draws += 1
        return self.blocks.x + (self.draws - 1) * self.grid

    def load_shared(self, agent: Team, name: str, node: Expr) -> Value:
        if name not in self.scalars:
            raise fault("CU252", f"`smem.{name}` is read before anybody has written it", node)
        return self.scalars[name]

    def store_shared(self, agent: Team, name: str, value: Value, stmt: Stmt) -> None:
        self.slot_count(name, SharedValue, stmt)
        self.scalars[name] = value

    # ---- registers ----

    def rows(self, agent: Team, count: int, node: Node) -> tuple[int, int, int, int]:
        warps = agent.threads // WARP
        if count != warps * self.fragment_rows * FRAGMENT:
            rows = self.fragment_rows
            message = f"{count} rows in {warps} warps of {rows} fragment rows of {FRAGMENT}"
            raise fault("CU301", message, node)
        return len(self.blocks), warps, self.fragment_rows, FRAGMENT

    def register_tile(self, agent: Team, stmt: RegisterTile, rows: Value, columns: Value) -> None:
        count = self.decide_int(rows, stmt)
        shape = (len(self.blocks), 1, 1, 1) if count == 1 else self.rows(agent, count, stmt)
        width = 1 if columns is None else self.decide_int(columns, stmt)
        agent.names[stmt.name] = TeamTile(stmt.name, stmt.dtype, shape, width, stmt)

    def row_state(self, agent: Team, node: Expr) -> Value:
        warps = agent.threads // WARP
        shape = (len(self.blocks), warps, self.fragment_rows, FRAGMENT)
        fields: dict[str, Tensor] = {}
        for declared in self.kernel.row_state:
            kind = declared.type
            width = LANES if isinstance(kind, Partial) else 1
            fields[declared.name] = poison((*shape, width), getattr(kind, "dtype", DType.F32))
        return RowValues(fields)

    def score_state(self, agent: Team, node: Expr) -> Value:
        shape = (len(self.blocks), agent.threads // WARP, self.fragment_rows, FRAGMENT)
        columns = self.size(query_tile(self.kernel))
        fields = {
            f.name: poison((*shape, columns), getattr(f.type, "dtype", DType.F32)) for f in self.kernel.score_state
        }
        return RowValues(fields)

    def tile(self, value: Value, stmt: Stmt) -> TeamTile:
        if not isinstance(value, TeamTile):
            raise fault("CU301", "this operand is not a register tile", stmt)
        return value

    def zero(self, agent: Team, stmt: Zero, dst: Value) -> None:
        tile = self.tile(dst, stmt)
        tile.data = torch.zeros((*tile.rows, tile.columns), dtype=TORCH[tile.dtype])

    def cast(self, agent: Team, stmt: Cast, dst: Value, src: Value) -> None:
        tile = self.tile(dst, stmt)
        tile.data = self.tile(src, stmt).data.to(TORCH[tile.dtype])
