"""The tile operations of the value engine: copies, gemms, region calls, stores."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.operands import GlobalRef, SharedRef, Value, fault
from cubridge.engine.core.sync import Landing
from cubridge.engine.values.launch import GlobalTensor
from cubridge.engine.values.machine import PendingGemm, Team, ValueMachine
from cubridge.engine.values.regions import Env, Item, as_item
from cubridge.engine.values.tiles import TORCH, RowValues, TeamTile, poison
from cubridge.ir.nodes import (
    Copy,
    CopyAsync,
    CpAsyncCommit,
    CpAsyncWait,
    Gemm,
    RegionCall,
    Stmt,
    Store,
    Tile,
    WgmmaCommit,
    WgmmaWait,
)


class ValueRun(ValueMachine):
    """The whole engine: ValueMachine has numbers and registers, this what moves and multiplies tiles."""

    # ---- copies ----

    def slot_shape(self, ref: SharedRef) -> tuple[Tile, tuple[int, int, int]]:
        kind = self.shared[ref.name].type
        assert isinstance(kind, Tile)
        return kind, (len(self.blocks), self.size(kind.rows), self.size(kind.cols))

    def read_shared(self, value: Value, stmt: Stmt) -> Tensor:
        ref = self.checked(value, Tile, stmt)
        if ref.key not in self.memory:
            kind, shape = self.slot_shape(ref)
            self.memory[ref.key] = poison(shape, kind.dtype)
        return self.memory[ref.key]

    def copy_async(self, agent: Team, stmt: CopyAsync, dst: Value, src: Value, row: Value, signal: Value) -> None:
        ref = self.checked(dst, Tile, stmt)
        kind, shape = self.slot_shape(ref)
        data = self.load(src, row, shape[1], stmt)
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
        data = self.load(src, row, shape[1], stmt)
        if data.shape[1:] != shape[1:] or data.dtype != TORCH[kind.dtype]:
            raise fault("CU301", f"a tile of {tuple(data.shape[1:])} cannot go to one of {shape[1:]}", stmt)
        self.memory[ref.key] = data

    def load(self, src: Value, row: Value, rows: int, stmt: Stmt) -> Tensor:
        """Rows [row, row + rows) of a view, zeros past its end: [blocks, rows, columns]."""
        ref, tensor = self.tensor(src, stmt)
        if not tensor.is_input:
            raise fault("CU312", f"`{ref.name}` is an output, and this copy reads it", stmt)
        first = np.asarray(row)
        if (first < 0).any():
            raise fault("CU313", f"this copy begins at row {int(first.min())}", stmt)
        at = np.minimum(first.reshape(-1, 1) + np.arange(rows), tensor.rows)
        index = [torch.from_numpy(np.asarray(x).reshape(-1, 1)) for x in self.view(ref, tensor, stmt)]
        data = tensor.data[(*index, torch.from_numpy(at))]
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
        a = work.a.flat if isinstance(work.a, TeamTile) else self.read_shared(work.a, stmt)
        b = self.read_shared(work.b, stmt)
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

    # ---- regions ----

    def region_call(self, agent: Team, stmt: RegionCall, *args: Value) -> None:
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
        row = args.get("row")
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
        tile = args.get("tile")
        if isinstance(tile, SimpleNamespace) and hasattr(tile, "q_start"):
            found["i"] = self.team_rows(agent)[:, :, rows] + as_item(tile.q_start)
        if "kv_start" in args:
            found["kv_start"] = as_item(args["kv_start"])
            columns = torch.arange(tiles["s"].columns, dtype=torch.int32).view(1, 1, 1, 1, -1)
            found["j"] = columns + found["kv_start"]
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

    def store(self, agent: Team, stmt: Store, dst: Value, row: Value, src: Value) -> None:
        ref, tensor = self.tensor(dst, stmt)
        self.view(ref, tensor, stmt)
        data = self.tile(src, stmt).flat
        columns = 1 if tensor.data.ndim == 3 else tensor.data.shape[-1]
        if tensor.is_input or data.shape[2] != columns:
            what = "is an input" if tensor.is_input else f"has {columns} columns, and the tile {data.shape[2]}"
            raise fault("CU312", f"`{ref.name}` {what}", stmt)
        first = np.asarray(row) + self.decide_int(self.compiled.row_origin(agent), self.kernel)
        if (first < 0).any():
            raise fault("CU313", f"this store begins at row {int(first.min())}", stmt)
        self.stores.append((ref.name, ref.indices, first, data))

    # ---- what only orders, which the order engine judges ----

    def barrier_init_fence(self, agent: Team, stmt: Stmt, *operands: Value) -> None:
        """Nothing to do with values."""

    wgmma_fence = registers_release = registers_take = finish_counters = barrier_init_fence
