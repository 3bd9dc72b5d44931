"""The tile operations of the value engine: copies, gemms, region calls, stores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.operands import GlobalRef, SharedRef, Value, fault
from cubridge.engine.core.sync import Landing
from cubridge.engine.values.launch import GlobalTensor
from cubridge.engine.values.machine import ORIGINS, PendingGemm, Stored, Team, ValueMachine
from cubridge.engine.values.regions import Env, Item, as_item
from cubridge.engine.values.tiles import TORCH, RowValues, TeamTile, poison
from cubridge.ir.nodes import (
    BulkCommit,
    BulkWaitRead,
    Clear,
    Copy,
    CopyAsync,
    CpAsyncCommit,
    CpAsyncWait,
    DotRows,
    Gemm,
    Load,
    ReadShared,
    ReduceAsync,
    RegionCall,
    Scale,
    Stmt,
    Store,
    StoreAsync,
    Tile,
    WgmmaCommit,
    WgmmaWait,
    WriteShared,
)
from cubridge.ir.region_types import family_of


class ValueRun(ValueMachine):
    """The whole engine: ValueMachine has numbers and registers, this what moves and multiplies tiles."""

    # ---- copies ----

    def slot_shape(self, ref: SharedRef) -> tuple[Tile, tuple[int, int, int]]:
        kind = self.shared[ref.name].type
        assert isinstance(kind, Tile)
        return kind, (len(self.blocks), self.size(kind.rows), self.size(kind.cols))

    def held(self, value: Value, stmt: Stmt) -> Tensor:
        ref = self.checked(value, Tile, stmt)
        if ref.key not in self.memory:
            kind, shape = self.slot_shape(ref)
            self.memory[ref.key] = poison(shape, kind.dtype)
        return self.memory[ref.key][window(ref)]

    def copy_async(self, agent: Team, stmt: CopyAsync, dst: Value, src: Value, row: Value, signal: Value) -> None:
        ref = self.checked(dst, Tile, stmt)
        kind, shape = self.slot_shape(ref)
        data = self.rows_of(src, row, shape[1], shape[2], stmt)
        if data.shape[1:] != shape[1:]:
            raise fault("CU301", f"a tile of {tuple(data.shape[1:])} cannot go to one of {shape[1:]}", stmt)
        if data.dtype != TORCH[kind.dtype]:
            names = {dtype: name for name, dtype in TORCH.items()}
            message = f"a {names[data.dtype]} tile of {shape[1:]} cannot go to an {kind.dtype} one"
            raise fault("CU301", message, stmt)
        self.memory[ref.key] = poison(shape, kind.dtype)
        if signal is None:
            agent.copies[-1].append((ref.key, data))
        else:
            barrier = self.barrier(signal, stmt)
            self.start_landing(Landing(barrier, barrier.phase, self.slot_bytes(ref.name, ref.node), stmt, ref, data))

    def copy(self, agent: Team, stmt: Copy, dst: Value, src: Value, row: Value) -> None:
        ref = self.checked(dst, Tile, stmt)
        kind, shape = self.slot_shape(ref)
        data = self.inputs_of(src, row, shape[1], stmt)
        if data.shape[1:] != shape[1:] or data.dtype != TORCH[kind.dtype]:
            raise fault("CU301", f"a tile of {tuple(data.shape[1:])} cannot go to one of {shape[1:]}", stmt)
        self.memory[ref.key] = data

    def rows_of(self, src: Value, row: Value, rows: int, columns: int, stmt: Stmt) -> Tensor:
        """Rows [row, row + rows) of a view, zeros past its end; of a view of numbers one row of them: [blocks, rows, columns]."""
        _, tensor = self.tensor(src, stmt)
        if tensor.data.ndim == 3:
            return self.inputs_of(src, row, columns, stmt).squeeze(-1).unsqueeze(1)
        return self.inputs_of(src, row, rows, stmt)

    def inputs_of(self, src: Value, row: Value, rows: int, stmt: Stmt) -> Tensor:
        """Rows [row, row + rows) of a view, zeros past its end: [blocks, rows, columns], one column of numbers."""
        ref, tensor = self.tensor(src, stmt)
        if not tensor.is_input:
            raise fault("CU312", f"`{ref.name}` is an output, and this copy reads it", stmt)
        first = np.asarray(row)
        if (first < 0).any():
            raise fault("CU313", f"this copy begins at row {int(first.min())}", stmt)
        at = np.minimum(first.reshape(-1, 1) + np.arange(rows), tensor.rows)
        index = [torch.from_numpy(np.asarray(x).reshape(-1, 1)) for x in self.view(ref, tensor, stmt)]
        data = tensor.data[(*index, torch.from_numpy(at))]
        data = data.unsqueeze(-1) if tensor.data.ndim == 3 else data
        return data.expand(len(self.blocks), -1, -1)

    def tensor(self, value: Value, stmt: Stmt) -> tuple[GlobalRef, GlobalTensor]:
        ref, _ = self.global_param(value, stmt)
        tensor = self.param(ref.name, stmt)
        if not isinstance(tensor, GlobalTensor):
            raise fault("CU301", f"`{ref.name}` is absent in this launch, or no tensor", stmt)
        return ref, tensor

    def view(self, ref: GlobalRef, tensor: GlobalTensor, stmt: Stmt) -> tuple[Value, ...]:
        for x, (index, size) in enumerate(zip(ref.indices, tensor.data.shape, strict=False)):
            values = np.asarray(index)
            if (values < 0).any() or (values >= size).any():
                raise fault("CU313", f"index {x} of `{ref.name}` runs past its {size} entries", stmt)
        return ref.indices

    def landed(self, landing: Landing) -> None:
        self.memory[landing.dst.key] = landing.data

    def commit(self, agent: Team, stmt: CpAsyncCommit) -> None:
        agent.copies.append([])

    def wait_group(self, agent: Team, stmt: CpAsyncWait, pending: Value) -> None:
        pending = self.decide_int(pending, stmt)
        for group in agent.copies[: max(0, len(agent.copies) - 1 - pending)]:
            for key, data in group:
                self.memory[key] = data
            group.clear()

    # ---- gemms ----

    def gemm(self, agent: Team, stmt: Gemm, dst: Value, a: Value, b: Value) -> None:
        tile = self.tile(dst, stmt)
        work = PendingGemm(stmt, tile, tile.flat, a, b)
        if stmt.asynchronous:
            agent.gemms[-1].append(work)
            tile.spoil()
        else:
            self.multiply(work)

    def multiply(self, work: PendingGemm) -> None:
        stmt = work.stmt
        a = work.a.flat if isinstance(work.a, TeamTile) else self.held(work.a, stmt)
        b = self.held(work.b, stmt)
        a = a.transpose(1, 2) if stmt.a_transposed else a
        b = b.transpose(1, 2) if stmt.transposed else b
        if a.shape[2] != b.shape[1] or (a.shape[1], b.shape[2]) != work.before.shape[1:]:
            shapes = f"{tuple(a.shape[1:])} times {tuple(b.shape[1:])}"
            raise fault("CU301", f"a gemm of {shapes} into {tuple(work.before.shape[1:])}", stmt)
        if stmt.accumulate:
            work.dst.set_flat(torch.baddbmm(work.before, a.float(), b.float()))
        else:
            work.dst.set_flat(torch.bmm(a.float(), b.float()))

    def wgmma_commit(self, agent: Team, stmt: WgmmaCommit) -> None:
        agent.gemms.append([])

    def wgmma_wait(self, agent: Team, stmt: WgmmaWait, pending: Value) -> None:
        pending = self.decide_int(pending, stmt)
        for group in agent.gemms[: max(0, len(agent.gemms) - 1 - pending)]:
            for work in group:
                self.multiply(work)
            group.clear()

    # ---- what each thread does for itself ----------------------------------------------------------------------------

    def scale(self, agent: Team, stmt: Scale, dst: Value, factor: Value) -> None:
        tile = self.tile(dst, stmt)
        value = self.param(factor.name, stmt) if isinstance(factor, GlobalRef) else factor
        tile.data = tile.data * as_item(value)

    def load(self, agent: Team, stmt: Load, dst: Value, src: Value, row: Value, past_end: Value) -> None:
        tile, (_, tensor) = self.tile(dst, stmt), self.tensor(src, stmt)
        rows = tile.flat.shape[1]
        data = self.inputs_of(src, row, rows, stmt)
        if data.shape != tile.flat.shape or data.dtype != tile.data.dtype:
            raise fault(
                "CU301", f"rows of {tuple(data.shape[1:])} cannot go to a tile of {tuple(tile.flat.shape[1:])}", stmt
            )
        inside = torch.from_numpy(np.asarray(row).reshape(-1, 1) + np.arange(rows) < tensor.rows).unsqueeze(-1)
        tile.set_flat(torch.where(inside, data, torch.tensor(math.nan if past_end is None else past_end)))

    def dot_rows(self, agent: Team, stmt: DotRows, dst: Value, a: Value, b: Value, row: Value) -> None:
        tile = self.tile(dst, stmt)
        left, right = (self.inputs_of(x, row, tile.flat.shape[1], stmt).float() for x in (a, b))
        tile.set_flat((left * right).sum(-1, keepdim=True))

    def clear(self, agent: Team, stmt: Clear, dst: Value) -> None:
        ref, tensor = self.tensor(dst, stmt)
        self.view(ref, tensor, stmt)
        zeros = torch.zeros((len(self.blocks), *tensor.data.shape[2:]))
        self.stores.append(Stored(ref.name, ref.indices, np.asarray(0), 0, zeros))

    def read_shared(self, agent: Team, stmt: ReadShared, dst: Value, src: Value) -> None:
        tile, data = self.tile(dst, stmt), self.held(src, stmt)
        if data.shape != tile.flat.shape:
            raise fault(
                "CU301", f"a tile of {tuple(data.shape[1:])} cannot go to one of {tuple(tile.flat.shape[1:])}", stmt
            )
        tile.set_flat(data)

    def write_shared(self, agent: Team, stmt: WriteShared, dst: Value, src: Value) -> None:
        ref = self.checked(dst, Tile, stmt)
        old, data = self.held(replace(ref, window=None), stmt), self.tile(src, stmt).flat
        if old[window(ref)].shape != data.shape:
            raise fault("CU301", f"a tile of {tuple(data.shape[1:])} does not fit its place", stmt)
        new = old.clone()
        new[window(ref)] = data
        self.memory[ref.key] = new

    # ---- bulk copies to global memory ----

    def reduce_async(self, agent: Team, stmt: ReduceAsync, dst: Value, src: Value) -> None:
        ref, tensor = self.tensor(dst, stmt)
        self.view(ref, tensor, stmt)
        slot = self.checked(src, Tile, stmt)
        agent.bulk[-1].append(lambda: self.sums.append((ref.name, ref.indices, self.held(slot, stmt))))

    def store_async(self, agent: Team, stmt: StoreAsync, dst: Value, row: Value, src: Value) -> None:
        ref, tensor = self.tensor(dst, stmt)
        self.view(ref, tensor, stmt)
        slot, first = self.checked(src, Tile, stmt), np.asarray(row)
        columns = self.slot_shape(slot)[1][2]
        if tensor.is_input or columns != tensor.data.shape[-1]:
            what = "is an input" if tensor.is_input else f"has other columns than the {columns} of the tile"
            raise fault("CU312", f"`{ref.name}` {what}", stmt)
        if (first < 0).any():
            raise fault("CU313", f"this store begins at row {int(first.min())}", stmt)
        agent.bulk[-1].append(
            lambda: self.stores.append(Stored(ref.name, ref.indices, first, 0, self.held(slot, stmt)))
        )

    def bulk_commit(self, agent: Team, stmt: BulkCommit) -> None:
        agent.bulk.append([])

    def bulk_wait_read(self, agent: Team, stmt: BulkWaitRead, pending: Value) -> None:
        pending = self.decide_int(pending, stmt)
        self.read_in_bulk(agent.bulk[: max(0, len(agent.bulk) - 1 - pending)])

    def ended(self, agent: Team) -> None:
        self.read_in_bulk(agent.bulk)

    def read_in_bulk(self, groups: list[list[Callable[[], None]]]) -> None:
        """The copies of these groups read their tiles."""
        for group in groups:
            for copy in group:
                copy()
            group.clear()

    # ---- regions ----

    def region_call(self, agent: Team, stmt: RegionCall, *args: Value) -> None:
        if stmt.region == "tile_setup":
            self.set_up(agent, args[0])
            return
        function = self.kernel.region(stmt.region)
        given = dict(zip(function.params, args, strict=True))
        only = self.decide_int(given["r"], stmt) if "r" in given else None
        if only is not None and not 0 <= only < self.fragment_rows:
            raise fault("CU301", f"there is no fragment row {only}", stmt)
        self.run_region(agent, stmt, given, slice(None) if only is None else slice(only, only + 1))
        if self.watch is not None:
            self.watch.see(self, agent, stmt, given)

    def run_region(self, agent: Team, stmt: RegionCall, args: dict[str, Value], rows: slice) -> None:
        tiles = {name: v for name, v in args.items() if isinstance(v, TeamTile)}
        row = args.get("row", args.get("kept"))
        state = row.fields if isinstance(row, RowValues) else {}
        names = dict(self.globals) | {name: t.data[:, :, rows] for name, t in tiles.items()}
        before = {name: x[:, :, rows] for name, x in state.items()}
        env = Env(self, names | self.accessors(agent, args, tiles, rows), dict(before), args.get("tile"), rows)
        given = dict(env.names)
        self.compiled.regions[stmt.region](env)
        for name, tile in tiles.items():
            if env.names[name] is not given[name]:
                tile.data = self.merged(tile.data, env.names[name], rows, stmt)
        for name, old in before.items():
            if env.row[name] is not old:
                state[name] = self.merged(state[name], env.row[name], rows, stmt)

    def accessors(
        self, agent: Team, args: dict[str, Value], tiles: dict[str, TeamTile], rows: slice
    ) -> dict[str, Item]:
        """`i` and `j` or `e` of a call, and the numbers that it gets."""
        found: dict[str, Item] = {}
        tile, family = args.get("tile"), family_of(self.kernel)
        if isinstance(tile, SimpleNamespace) and hasattr(tile, ORIGINS[family.rows]):
            found[family.rows.value] = self.team_rows(agent)[:, :, rows] + as_item(getattr(tile, ORIGINS[family.rows]))
        start = ORIGINS.get(family.columns, "")
        if start in args:
            found[start] = as_item(args[start])
            width = max(t.columns for t in tiles.values())
            found[family.columns.value] = torch.arange(width, dtype=torch.int32).view(1, 1, 1, 1, -1) + found[start]
        if "o" in tiles:
            found["e"] = torch.arange(tiles["o"].columns, dtype=torch.int32).view(1, 1, 1, 1, -1)
        return found

    def merged(self, old: Tensor, new: Item, rows: slice, stmt: Stmt) -> Tensor:
        """`old` with `new` in fragment rows `rows`, in old's shape and type."""
        part = old[:, :, rows]
        value = torch.as_tensor(new, dtype=old.dtype)
        try:
            value = value.expand(part.shape)
        except RuntimeError:
            raise fault(
                "CU301", f"a value of shape {tuple(value.shape)} where one of {tuple(part.shape)} goes", stmt
            ) from None
        if part.shape == old.shape:
            return value.contiguous()
        result = old.clone()
        result[:, :, rows] = value
        return result

    # ---- stores ----

    def store(self, agent: Team, stmt: Store, dst: Value, row: Value, src: Value, column: Value) -> None:
        ref, tensor = self.tensor(dst, stmt)
        self.view(ref, tensor, stmt)
        data = self.tile(src, stmt).flat
        columns = 1 if tensor.data.ndim == 3 else tensor.data.shape[-1]
        begins = 0 if column is None else self.decide_int(column, stmt)
        if tensor.is_input or (data.shape[2] != columns and column is None) or begins + data.shape[2] > columns:
            what = "is an input" if tensor.is_input else f"has {columns} columns, and the tile {data.shape[2]}"
            raise fault("CU312", f"`{ref.name}` {what}", stmt)
        first = np.asarray(row) + self.decide_int(self.compiled.row_origin(agent), self.kernel)
        if (first < 0).any():
            raise fault("CU313", f"this store begins at row {int(first.min())}", stmt)
        self.stores.append(Stored(ref.name, ref.indices, first, begins, data))

    # ---- what only orders, which the order engine judges ----

    def barrier_init_fence(self, agent: Team, stmt: Stmt, *operands: Value) -> None:
        """Nothing to do with values."""

    wgmma_fence = registers_release = registers_take = finish_counters = async_proxy_fence = barrier_init_fence


def window(ref: SharedRef) -> tuple[slice, ...]:
    """The part of a slot [blocks, rows, columns] that an operand means."""
    if ref.window is None:
        return ()
    which, first, count = ref.window
    part = slice(first, first + count)
    return (slice(None), part) if which == "rows" else (slice(None), slice(None), part)
