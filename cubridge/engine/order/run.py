"""The tile operations of the order engine: copies and their groups, gemms and their groups, register tiles, what is left over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cubridge.engine.core.code import WAIT
from cubridge.engine.core.operands import SharedRef, Value, fault
from cubridge.engine.core.sync import Landing
from cubridge.engine.order.clock import Access, join_part
from cubridge.engine.order.machine import GemmLog, OrderMachine, Warp
from cubridge.engine.order.memory import WHOLE, Content, Slot, unread
from cubridge.engine.order.steps import cast_step, local_tile, output_step, region_step, scores_step, store_step
from cubridge.engine.order.tiles import RowTile, WarpTile, as_tile
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.hardware import WARP, WARPGROUP
from cubridge.ir.nodes import (
    Cast,
    Copy,
    CopyAsync,
    CpAsyncCommit,
    CpAsyncWait,
    Expr,
    Gemm,
    Global,
    RegionCall,
    RegistersRelease,
    RegisterTile,
    Stmt,
    Store,
    TensorMap,
    Tile,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    Zero,
)  # fmt: skip

Trace: TypeAlias = tuple[tuple[object, ...], ...]


class OrderRun(OrderMachine):
    """The whole engine: OrderMachine has the barriers and the clocks, this the tiles."""

    # ---- names and register tiles ----

    def row_state(self, agent: Warp, node: Expr) -> Value:
        return RowTile(self.here(agent))

    def register_tile(self, agent: Warp, stmt: RegisterTile, rows: Value, columns: Value) -> None:
        old = agent.names.get(stmt.name)
        if isinstance(old, WarpTile):
            old.access(agent.waited, stmt, read=False, write=True)
            if old in agent.outputs:
                agent.outputs.remove(old)
        agent.names[stmt.name] = WarpTile(stmt.name, stmt)

    def zero(self, agent: Warp, stmt: Zero, dst: Value) -> None:
        tile = local_tile(agent, dst, stmt, read=False, write=True)
        if tile.zeroed and tile.finished is None:
            raise fault("CU263", f"`{tile.name}` is set to zero again before it is finalized", stmt)
        tile.begin()
        if tile not in agent.outputs:
            agent.outputs.append(tile)
        agent.histories.append(tile.history)

    def cast(self, agent: Warp, stmt: Cast, dst: Value, src: Value) -> None:
        src = local_tile(agent, src, stmt, read=True, write=False)
        cast_step(self, agent, local_tile(agent, dst, stmt, read=False, write=True), src, stmt)

    def region_call(self, agent: Warp, stmt: RegionCall, *args: Value) -> None:
        self.whole(agent, stmt)
        region_step(self, agent, args, stmt)

    def store(self, agent: Warp, stmt: Store, dst: Value, row: Value, src: Value) -> None:
        self.whole(agent, stmt)
        ref, declared = self.global_param(dst, stmt)
        if ref.name in self.copied:
            raise fault("CU264", f"`{ref.name}` is stored to, and copies read it", stmt)
        if self.param(declared.name, stmt) is None:
            raise fault("CU266", f"`{declared.name}` is absent in this launch", stmt)
        store_step(self, agent, ref, row, local_tile(agent, src, stmt, read=True, write=False), stmt)

    # ---- copies ----

    def slot(self, value: Value, stmt: Stmt) -> tuple[Slot, SharedRef]:
        ref = self.checked(value, Tile, stmt)
        slots = self.slot_count(ref.name, Tile, ref.node)
        label = f"smem.{ref.name}[{ref.slot}]" if slots > 1 else f"smem.{ref.name}"
        return self.slots.setdefault(ref.key, Slot(label)), ref

    def copy_async(self, agent: Warp, stmt: CopyAsync, dst: Value, src: Value, row: Value, signal: Value) -> None:
        slot, ref = self.slot(dst, stmt)
        view, declared = self.global_param(src, stmt)
        kind = self.shared[ref.name].type
        assert isinstance(kind, Tile)
        self.copied.add(view.name)
        content = Content(view.name, view.indices, row, self.size(kind.rows))
        if not isinstance(declared.type, Global if signal is None else TensorMap):
            raise fault("CU301", "a copy with `signal` comes from a tensor map, one without from global memory", stmt)
        if signal is None:
            self.copy_group(agent, stmt, slot, content)
        else:
            self.copy_bulk(agent, stmt, slot, ref, content, signal)

    def copy(self, agent: Warp, stmt: Copy, dst: Value, src: Value, row: Value) -> None:
        """A warp's part of a tile is there for itself; for others once they have met it."""
        self.whole(agent, stmt)
        slot, ref = self.slot(dst, stmt)
        view, _ = self.global_param(src, stmt)
        kind = self.shared[ref.name].type
        assert isinstance(kind, Tile)
        self.copied.add(view.name)
        content = Content(view.name, view.indices, row, self.size(kind.rows))
        slot.overwrite(agent.index, self.now(agent, stmt), content, agent.clock)

    def copy_group(self, agent: Warp, stmt: Stmt, slot: Slot, content: Content) -> None:
        self.whole(agent, stmt)
        group = agent.closed + 1
        write = Access(self.components.copies(agent.index), group, stmt, agent.label)
        slot.overwrite(agent.index, write, content, agent.clock)
        agent.open_copies.append(stmt)
        agent.real_copies[group] = stmt

    def copy_bulk(
        self, agent: Warp, stmt: CopyAsync, slot: Slot, ref: SharedRef, content: Content, signal: Value
    ) -> None:
        barrier = self.initialised(agent, self.barrier(signal, stmt), stmt)
        if not barrier.fenced:
            notes = (Note("initialised here", barrier.init.stmt.span),) if barrier.init is not None else ()
            message = f"the async proxy may not see the initialisation of `{barrier.label}`: no barrier_init_fence"
            raise fault("CU257", message, stmt, *notes)
        if agent.active != 1:
            raise fault("CU256", f"{agent.active} threads start this copy", stmt)
        slot.overwrite(WHOLE, Access(barrier.component, barrier.phase + 1, stmt, agent.label), content, agent.clock)
        self.start_landing(Landing(barrier, barrier.phase, self.slot_bytes(ref.name, ref.node), stmt, ref))

    def commit(self, agent: Warp, stmt: CpAsyncCommit) -> None:
        self.whole(agent, stmt)
        agent.closed += 1
        agent.open_copies.clear()

    def wait_group(self, agent: Warp, stmt: CpAsyncWait, pending: Value) -> None:
        self.whole(agent, stmt)
        done = agent.closed - self.pending(pending, stmt)
        agent.waited_copies = max(agent.waited_copies, done)
        agent.clock[self.components.copies(agent.index)] = agent.waited_copies

    def pending(self, value: Value, stmt: Stmt) -> int:
        pending = self.decide_int(value, stmt)
        if pending < 0:
            raise fault("CU301", f"a wait for all but {pending} groups", stmt)
        return pending

    # ---- gemms ----

    def gemm(self, agent: Warp, stmt: Gemm, dst: Value, a: Value, b: Value) -> None:
        self.whole(agent, stmt)
        tile = as_tile(dst, stmt)
        if stmt.asynchronous:
            self.issue(agent, stmt, tile, a, b)
        else:
            tile.access(agent.waited, stmt, read=stmt.accumulate, write=True)
            tile.touch(agent.fences, stmt)
            if isinstance(a, WarpTile):
                local_tile(agent, a, stmt, read=True, write=False)
        left = self.read_slot(agent, stmt, a) if isinstance(a, SharedRef) else as_tile(a, stmt)
        right = self.read_slot(agent, stmt, b)
        if isinstance(left, WarpTile):
            output_step(tile, left, right, stmt)
        elif stmt.accumulate or not stmt.transposed:
            raise fault("CU263", "scores are made by `s = gemm(q, k.T)`", stmt)
        else:
            scores_step(agent, tile, left, right, stmt)

    def read_slot(self, agent: Warp, stmt: Gemm, value: Value) -> Content:
        slot, _ = self.slot(value, stmt)
        if not stmt.asynchronous:
            return slot.read(self.now(agent, stmt), agent.clock, len(self.agents))
        if slot.parts and WHOLE not in slot.parts:
            write = next(iter(slot.parts.values())).write
            note = Note("the copy", write.stmt.span)
            raise fault(
                "CU262",
                f"wgmma reads `{slot.label}` through the async proxy, a cp.async copy does not write so",
                stmt,
                note,
            )
        access = Access(
            self.components.gemms(agent.warpgroup), agent.committed + 1, stmt, f"warpgroup {agent.warpgroup}"
        )
        return slot.read(access, agent.clock, len(self.agents))

    def issue(self, agent: Warp, stmt: Gemm, dst: WarpTile, a: Value, b: Value) -> None:
        """An asynchronous gemm: dst is poisoned and register operands are frozen until its group is waited for."""
        if agent.fences == 0:
            raise fault("CU262", "no wgmma_fence before the first gemm", stmt)
        group = agent.committed + 1
        self.same_for_all(agent, stmt, (getattr(a, "key", None), getattr(b, "key", None)))
        dst.check_fence(agent.fences, stmt)
        in_place = stmt.accumulate and dst.write_group > agent.waited  # gemms into one accumulator follow each other
        dst.access(dst.write_group if in_place else agent.waited, stmt, read=stmt.accumulate, write=True)
        dst.write_group, dst.write_stmt = group, stmt
        if isinstance(a, WarpTile):
            a.check_fence(agent.fences, stmt)
            a.access(agent.waited, stmt, read=True, write=False)
            a.read_group, a.read_stmt = group, stmt
        agent.open_gemms.append(stmt)

    def same_for_all(self, agent: Warp, stmt: Stmt, operands: tuple[Value, ...]) -> GemmLog:
        """A warpgroup's warps issue the same wgmma operations in the same order."""
        log = self.logs.setdefault(agent.warpgroup, GemmLog())
        entry = (stmt, operands)
        if agent.issued == len(log.entries):
            log.entries.append(entry)
        elif log.entries[agent.issued][1] != operands or log.entries[agent.issued][0] is not stmt:
            note = Note("another warp of its warpgroup is here", log.entries[agent.issued][0].span)
            raise fault("CU256", f"{agent.label} issues another wgmma operation than its warpgroup", stmt, note)
        agent.issued += 1
        return log

    def wgmma_fence(self, agent: Warp, stmt: WgmmaFence) -> None:
        self.whole(agent, stmt)
        agent.fences += 1

    def wgmma_commit(self, agent: Warp, stmt: WgmmaCommit) -> None:
        self.whole(agent, stmt)
        log = self.same_for_all(agent, stmt, ())
        agent.committed += 1
        control = log.control.setdefault(agent.committed, [0] * self.components.warps)
        join_part(control, agent.clock[: self.components.warps])
        agent.open_gemms.clear()

    def wgmma_wait(self, agent: Warp, stmt: WgmmaWait, pending: Value) -> bool | None:
        """Waits for the gemms, and so for every warp of the warpgroup to have issued them."""
        self.whole(agent, stmt)
        done = agent.committed - self.pending(pending, stmt)
        if any(a.committed < done for a in self.warpgroup(agent)):
            return WAIT
        if done > agent.waited:
            agent.waited = done
            agent.clock[self.components.gemms(agent.warpgroup)] = done
            join_part(agent.clock, self.logs[agent.warpgroup].control[done])
        return None

    def warpgroup(self, agent: Warp) -> list[Warp]:
        per = WARPGROUP // WARP
        return self.agents[agent.warpgroup * per : (agent.warpgroup + 1) * per]

    # ---- what is left over ----

    def ended(self, agent: Warp) -> None:
        for stmts, what in ((agent.open_copies, "copies"), (agent.open_gemms, "gemms")):
            if stmts:
                raise fault("CU260", f"{agent.label} ends with {what} in a group that it never commits", stmts[0])
        late = [stmt for group, stmt in agent.real_copies.items() if group > agent.waited_copies]
        if late:
            raise fault("CU260", f"{agent.label} ends without a wait for this copy", late[0])
        if agent.committed > agent.waited:
            entry = self.logs[agent.warpgroup].entries[-1][0]
            raise fault("CU260", f"{agent.label} ends without a wait for its last gemms", entry)

    def check_end(self) -> None:
        """Nothing may be left over when all warps have ended. Errors: the first thing that is."""
        for diagnostic in self.leftovers():
            raise CuError(diagnostic)

    def leftovers(self) -> Iterator[Diagnostic]:
        for barrier in self.barriers.values():
            if barrier.pending != barrier.arrivals and barrier.last_arrival is not None:
                message = f"`{barrier.label}` is left in a phase that lacks {barrier.lacks()}"
                yield Diagnostic("CU260", message, barrier.last_arrival.span)
        lost = unread(self.slots)
        if lost is not None:
            yield Diagnostic("CU253", f"nobody reads what this copy brings to `{lost[0]}`", lost[1].span)
        yield from self.work_left()
        if self.pool:
            release = next(at.stmt for at in self.code if isinstance(at.stmt, RegistersRelease))
            yield Diagnostic("CU265", f"{self.pool} of the registers released here are taken by nobody", release.span)

    def trace(self) -> Trace:
        """What became of every tile, by warp: equal traces of two race-free kernels mean equal results in every schedule."""
        found: list[tuple[object, ...]] = []
        for warp in self.agents:
            scores = [(s.queries, s.keys, tuple(s.steps), s.rows) for s in warp.scores]
            outputs = [tuple(history) for history in warp.histories]
            stored = sorted((work.index, name) for work, name in warp.stored)
            found.append((tuple(scores), tuple(outputs), tuple(stored), tuple(w for w, _ in warp.finished)))
        return tuple(found)

    def work_left(self) -> Iterator[Diagnostic]:
        due = self.works[: len(self.scenario.counts)]
        where = self.kernel.body[-1].span if self.kernel.body else self.kernel.span
        for warp, taken in self.turns.items():
            if taken != due:
                yield Diagnostic("CU266", f"{warp} takes {len(taken)} of this block's {len(due)} work tiles", where)
        outputs = [f.name for f in self.kernel.params if isinstance(f.type, Global) and f.name in ("o", "lse")]
        wanted = [name for name in outputs if self.param(name, self.kernel) is not None]
        for agent in self.agents:
            for work, stmt in agent.finished:
                missing = [name for name in wanted if (work, name) not in agent.stored]
                if missing:
                    yield Diagnostic("CU263", f"`{missing[0]}` is never stored for this work tile", stmt.span)
        for work in due:
            if not any(work == done for agent in self.agents for done, _ in agent.finished):
                yield Diagnostic("CU263", f"no warp finishes work tile {work.index}", where)
        if self.scenario.dealt and self.draws and self.finish is None:
            yield Diagnostic("CU266", "the block draws work from counters that it never finishes", where)
        if self.scenario.dealt and self.draws != len(due):
            yield Diagnostic("CU266", f"the block draws {self.draws} times for {len(due)} work tiles", where)
