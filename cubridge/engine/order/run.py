"""The tile operations of the order engine: copies and their groups, gemms and their groups, register tiles, what is left over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cubridge.engine.core.code import WAIT
from cubridge.engine.core.operands import SharedRef, Value, fault
from cubridge.engine.core.sync import Landing
from cubridge.engine.order.backward import noted, region_access, store_of_work, stored_names
from cubridge.engine.order.clock import Access, join_part
from cubridge.engine.order.machine import GemmLog, OrderMachine, Warp
from cubridge.engine.order.memory import WHOLE, Content, Slot, unread
from cubridge.engine.order.steps import (
    cast_step,
    local_tile,
    output_step,
    region_step,
    scores_step,
    staged_output,
    store_step,
    stored_async_step,
)
from cubridge.engine.order.tiles import RowTile, WarpTile, as_tile
from cubridge.ir.diagnostics import CuError, Diagnostic, Note
from cubridge.ir.families import FORWARD
from cubridge.ir.hardware import WARP, WARPGROUP
from cubridge.ir.nodes import (
    AsyncProxyFence,
    BulkCommit,
    BulkWaitRead,
    Cast,
    Clear,
    Copy,
    CopyAsync,
    CpAsyncCommit,
    CpAsyncWait,
    DotRows,
    Expr,
    Gemm,
    Global,
    Load,
    ReadShared,
    ReduceAsync,
    RegionCall,
    RegistersRelease,
    RegisterTile,
    Scale,
    Stmt,
    Store,
    StoreAsync,
    TensorMap,
    Tile,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    WriteShared,
    Zero,
)  # fmt: skip
from cubridge.ir.walk import walk

Trace: TypeAlias = tuple[tuple[object, ...], ...]


class OrderRun(OrderMachine):
    """The whole engine: OrderMachine has the barriers and the clocks, this the tiles."""

    # ---- names and register tiles ----

    def row_state(self, agent: Warp, node: Expr) -> Value:
        return RowTile(self.here(agent))

    def score_state(self, agent: Warp, node: Expr) -> Value:
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
        self.mark(agent, stmt, tile)
        if tile not in agent.outputs:
            agent.outputs.append(tile)
        agent.histories.append(tile.history)

    def cast(self, agent: Warp, stmt: Cast, dst: Value, src: Value) -> None:
        src = local_tile(agent, src, stmt, read=True, write=False)
        made = local_tile(agent, dst, stmt, read=False, write=True)
        self.mark(agent, stmt, made, src)
        if self.family.name == FORWARD:
            cast_step(self, agent, made, src, stmt)

    def region_call(self, agent: Warp, stmt: RegionCall, *args: Value) -> None:
        if stmt.region != "tile_setup":
            self.whole(agent, stmt)
        step = region_step if self.family.name == FORWARD else region_access
        self.mark(agent, stmt, stmt.region, *args)
        step(self, agent, args, stmt)

    def store(self, agent: Warp, stmt: Store, dst: Value, row: Value, src: Value, column: Value) -> None:
        self.whole(agent, stmt)
        ref, declared = self.global_param(dst, stmt)
        if ref.name in self.copied:
            raise fault("CU264", f"`{ref.name}` is stored to, and copies read it", stmt)
        if self.param(declared.name, stmt) is None:
            raise fault("CU266", f"`{declared.name}` is absent in this launch", stmt)
        self.mark(agent, stmt, ref.name, *ref.indices, row, src, column)
        step = store_step if self.family.name == FORWARD else store_of_work
        step(self, agent, ref, row, local_tile(agent, src, stmt, read=True, write=False), stmt)

    # ---- what each thread does for itself ----

    def mark(self, agent: Warp, stmt: Stmt, *operands: Value) -> None:
        """What a backward kernel does to data, and with what, for its trace."""
        if self.family.name != FORWARD:
            agent.steps.append((type(stmt).__name__, *(noted(x) for x in operands)))

    def scale(self, agent: Warp, stmt: Scale, dst: Value, factor: Value) -> None:
        self.whole(agent, stmt)
        self.mark(agent, stmt, dst, factor)
        local_tile(agent, dst, stmt, read=True, write=True)

    def load(self, agent: Warp, stmt: Load, dst: Value, *operands: Value) -> None:
        self.whole(agent, stmt)
        self.mark(agent, stmt, dst, *operands)
        local_tile(agent, dst, stmt, read=False, write=True)

    def dot_rows(self, agent: Warp, stmt: DotRows, dst: Value, *operands: Value) -> None:
        self.whole(agent, stmt)
        self.mark(agent, stmt, dst, *operands)
        local_tile(agent, dst, stmt, read=False, write=True)

    def clear(self, agent: Warp, stmt: Clear, dst: Value) -> None:
        self.whole(agent, stmt)
        self.mark(agent, stmt, dst)
        self.global_param(dst, stmt)

    def read_shared(self, agent: Warp, stmt: ReadShared, dst: Value, src: Value) -> None:
        self.whole(agent, stmt)
        local_tile(agent, dst, stmt, read=False, write=True)
        slot, _ = self.slot(src, stmt)
        self.mark(agent, stmt, dst, slot.read(self.now(agent, stmt), agent.clock, len(self.agents)))

    def write_shared(self, agent: Warp, stmt: WriteShared, dst: Value, src: Value) -> None:
        """Each warp writes its rows. What the slot holds is told by how often this warp has written to it."""
        self.whole(agent, stmt)
        src = local_tile(agent, src, stmt, read=True, write=False)
        slot, ref = self.slot(dst, stmt)
        kind = self.shared[ref.name].type
        assert isinstance(kind, Tile)
        rows = self.size(kind.rows)
        teams = rows // ref.window[2] if ref.window is not None and ref.window[0] == "rows" else 1
        slot.writers = teams * (WARPGROUP // WARP)
        turn = slot.turns[agent.index] = slot.turns.get(agent.index, 0) + 1
        content = Content(f"smem.{ref.name}", (turn,), 0, rows)
        self.mark(agent, stmt, ref, src)
        if self.family.name == FORWARD:
            content = staged_output(self, agent, src, slot, rows, stmt)
        slot.overwrite(agent.index, self.now(agent, stmt), content, agent.clock, stored=True)
        self.tick(agent)

    def async_proxy_fence(self, agent: Warp, stmt: AsyncProxyFence) -> None:
        self.whole(agent, stmt)
        agent.shown = agent.clock[self.components.memory(agent.index)]
        self.tick(agent)  # it does not show what is stored from here on

    # ---- sums in global memory ----

    def reduce_async(self, agent: Warp, stmt: ReduceAsync, dst: Value, src: Value) -> None:
        ref, _ = self.global_param(dst, stmt)
        if agent.active != 1:
            raise fault("CU256", f"{agent.active} threads start this copy", stmt)
        place = (ref.name, *ref.indices, agent.warpgroup)
        if place in self.reductions:
            note = Note("first here", self.reductions[place].span)
            raise fault("CU263", f"a part of `{ref.name}` is added twice for one step", stmt, note)
        self.reductions[place] = stmt
        slot, _ = self.slot(src, stmt)
        self.mark(agent, stmt, place, self.read_in_bulk(agent, slot, stmt))

    def read_in_bulk(self, agent: Warp, slot: Slot, stmt: Stmt) -> Content:
        """A bulk copy of the open group reads a slot until its wait."""
        access = Access(self.components.reductions(agent.index), len(agent.reduced) + 1, stmt, agent.label)
        agent.open_reductions.append(stmt)
        return self.read_through_proxy(slot, access, agent)

    def store_async(self, agent: Warp, stmt: StoreAsync, dst: Value, row: Value, src: Value) -> None:
        ref, declared = self.global_param(dst, stmt)
        if agent.active != 1:
            raise fault("CU256", f"{agent.active} threads start this copy", stmt)
        if ref.name in self.copied:
            raise fault("CU264", f"`{ref.name}` is stored to, and copies read it", stmt)
        if not isinstance(declared.type, TensorMap):
            raise fault("CU301", "an asynchronous store goes to a tensor map", stmt)
        slot, _ = self.slot(src, stmt)
        content = self.read_in_bulk(agent, slot, stmt)
        stored_async_step(self, ref, row, content, slot, stmt)

    def bulk_commit(self, agent: Warp, stmt: BulkCommit) -> None:
        agent.reduced.append(agent.open_reductions[-1] if agent.open_reductions else stmt)
        agent.open_reductions.clear()

    def bulk_wait_read(self, agent: Warp, stmt: BulkWaitRead, pending: Value) -> None:
        done = len(agent.reduced) - self.pending(pending, stmt)
        agent.waited_reductions = max(agent.waited_reductions, done)
        agent.clock[self.components.reductions(agent.index)] = agent.waited_reductions

    def read_through_proxy(self, slot: Slot, access: Access, agent: Warp) -> Content:
        """An asynchronous read of what threads may have stored: each of them fences it before the meeting that tells the reader."""
        for warp, part in slot.parts.items():
            if part.stored and part.write.time > self.agents[warp].shown:
                note = Note(f"{part.write.who} stores it here", part.write.stmt.span)
                help = "`async_proxy_fence()` after the store, before the threads meet"
                message = f"`{slot.label}` is read through the async proxy, and no fence shows it what was stored"
                raise fault("CU262", message, access.stmt, note, help=help)
        return slot.read(access, agent.clock, slot.writers or len(self.agents))

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
        of_numbers = isinstance(declared.type, Global) and len(declared.type.shape) == 3
        if not of_numbers and not isinstance(declared.type, Global if signal is None else TensorMap):
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
        self.mark(agent, stmt, tile, left, a, right, b, stmt.transposed, stmt.a_transposed, stmt.accumulate)
        if self.family.name != FORWARD:
            return
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
        access = Access(
            self.components.gemms(agent.warpgroup), agent.committed + 1, stmt, f"warpgroup {agent.warpgroup}"
        )
        if slot.writers:
            return self.read_through_proxy(slot, access, agent)
        if slot.parts and WHOLE not in slot.parts:
            write = next(iter(slot.parts.values())).write
            note = Note("the copy", write.stmt.span)
            raise fault(
                "CU262",
                f"wgmma reads `{slot.label}` through the async proxy, a cp.async copy does not write so",
                stmt,
                note,
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
        open_groups = (
            (agent.open_copies, "copies"),
            (agent.open_gemms, "gemms"),
            (agent.open_reductions, "bulk copies"),
        )
        for stmts, what in open_groups:
            if stmts:
                raise fault("CU260", f"{agent.label} ends with {what} in a group that it never commits", stmts[0])
        late = [stmt for group, stmt in agent.real_copies.items() if group > agent.waited_copies]
        if late:
            raise fault("CU260", f"{agent.label} ends without a wait for this copy", late[0])
        if len(agent.reduced) > agent.waited_reductions:
            raise fault("CU260", f"{agent.label} ends while its last bulk copy may still read", agent.reduced[-1])
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
        yield from self.sums_left()
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
            finished = tuple(w for w, _ in warp.finished)
            found.append((tuple(scores), tuple(outputs), tuple(stored), finished, tuple(warp.steps)))
        return tuple(found)

    def outputs(self) -> tuple[str, ...]:
        """What each work tile stores, whether the kernel does or not; a backward kernel, all that it stores anywhere."""
        if self.family.name == FORWARD:
            return tuple(
                f.name for f in self.kernel.params if isinstance(f.type, Global | TensorMap) and f.name in ("o", "lse")
            )
        return stored_names(self.kernel)

    def sums_left(self) -> Iterator[Diagnostic]:
        """A backward kernel adds to dq once for each consumer, step and query head."""
        starts = [n for n in walk(self.kernel) if isinstance(n, ReduceAsync)]
        if not starts:
            return
        heads = int(self.sizes["Hq"]) // int(self.sizes["Hk"])
        consumers = self.components.warpgroups - 1
        due = sum(self.scenario.counts) * heads * consumers
        if len(self.reductions) != due:
            message = f"{len(self.reductions)} parts are added to sums, and the steps of this block make {due}"
            yield Diagnostic("CU264", message, starts[-1].span)

    def work_left(self) -> Iterator[Diagnostic]:
        due = self.works[: len(self.scenario.counts)]
        where = self.kernel.body[-1].span if self.kernel.body else self.kernel.span
        for warp, taken in self.turns.items():
            if taken != due:
                yield Diagnostic("CU266", f"{warp} takes {len(taken)} of this block's {len(due)} work tiles", where)
        wanted = [name for name in self.outputs() if self.param(name, self.kernel) is not None]
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
