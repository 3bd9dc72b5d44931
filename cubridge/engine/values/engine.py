"""The value engine: a kernel over batched torch tiles, stricter than hardware: what is not waited for is NaN."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.code import compile_body
from cubridge.engine.core.expressions import compile_expr
from cubridge.engine.core.operands import Value
from cubridge.engine.core.scheduler import run_agents
from cubridge.engine.core.sync import IN_TURN, Policy
from cubridge.engine.threads import one_thread
from cubridge.engine.values.grid import choose_grid, groups_alike
from cubridge.engine.values.launch import Blocks, GlobalTensor, Launch, host_names, parameters
from cubridge.engine.values.machine import Code, Split, Stored, Watch, compile_function
from cubridge.engine.values.regions import compile_region
from cubridge.engine.values.run import ValueRun
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Clear, Kernel, Store, StoreAsync
from cubridge.ir.region_types import family_of
from cubridge.ir.vocabulary import SCHEDULE
from cubridge.ir.walk import field_of, walk


def run_values(
    kernel: Kernel,
    inputs: tuple[Tensor, Tensor, Tensor],
    launch: Launch,
    watch: Watch | None = None,
    policy: Policy = IN_TURN,
) -> tuple[Tensor, Tensor | None]:
    """What the kernel computes of q [B, Hq, Lq, D], k and v [B, Hk, Lk, D]: out as q, and lse [B, Hq, Lq] fp32 if wanted.

    Errors: CU3 where something has no value or is read outside its extents, CU25x where a run cannot go on, CU314 for an output
    row that is not written exactly once."""
    found = run_kernel(kernel, dict(zip("qkv", inputs, strict=True)), launch, watch=watch, policy=policy)
    return found["o"], found.get("lse")


def run_kernel(
    kernel: Kernel,
    inputs: Mapping[str, Tensor],
    launch: Launch,
    sums: Mapping[str, Tensor] | None = None,
    watch: Watch | None = None,
    policy: Policy = IN_TURN,
) -> dict[str, Tensor]:
    """What a kernel of any family makes of its inputs, by the names of its parameters; `sums` is what it adds to.
    Errors: as `run_values`."""
    params = parameters(kernel, inputs, launch, sums or {})
    names = host_names(kernel, launch)
    with one_thread(), np.errstate(divide="raise", invalid="raise"):
        code = prepare(kernel)
        grid = launch.grid or choose_grid(code, params, names, launch.shape)
        written = _untouched(kernel, params)
        waiting = groups_alike(code, params, names, grid)
        while waiting:
            waiting += _run_group(ValueRun(code, params, names, waiting.pop(), grid[0], policy), params, written, watch)
    for name, count in written.items():
        _check_written(kernel, name, count)
    return {name: p.data for name, p in params.items() if isinstance(p, GlobalTensor) and not p.is_input}


def _run_group(
    machine: ValueRun, params: Mapping[str, Value], written: dict[str, Tensor], watch: Watch | None
) -> list[Blocks]:
    """Runs blocks to their end; or, where they turn out to go different ways, gives the parts that must run alone."""
    machine.watch = watch
    if watch is not None:
        watch.start()
    try:
        run_agents(machine)
    except Split as split:
        return [machine.blocks.take(np.flatnonzero(split.values == v)) for v in np.unique(split.values)]
    for store in machine.stores:
        _write(params, written, store)
    for name, view, data in machine.sums:
        _add(params[name].data, view, data)
    return []


def prepare(kernel: Kernel) -> Code:
    scalar = (*family_of(kernel).walk, SCHEDULE)
    functions = {f.name: compile_function(f) for f in (*kernel.regions, kernel.schedule) if f.name in scalar}
    regions = {f.name: compile_region(f) for f in kernel.regions if f.name not in scalar}
    return Code(kernel, compile_body(kernel, ValueRun), regions, functions, compile_expr(kernel.row_origin))


def _untouched(kernel: Kernel, params: Mapping[str, Value]) -> dict[str, Tensor]:
    """How often each row of each output is written, none yet; of one that is written in parts, each element of a row."""
    stores = [n for s in kernel.body for n in walk(s) if isinstance(n, Store | StoreAsync | Clear)]
    parts = {field_of(s.dst) for s in stores if isinstance(s, Store) and s.column is not None}
    named = {field_of(s.dst) for s in stores}
    outputs = {name: p.data for name, p in params.items() if name in named and isinstance(p, GlobalTensor)}
    return {
        name: torch.zeros(x.shape if name in parts else x.shape[:3], dtype=torch.int32) for name, x in outputs.items()
    }


def _write(params: Mapping[str, Value], written: dict[str, Tensor], store: Stored) -> None:
    """Rows of view [batch, head]; those past the end are dropped."""
    out, count, data = params[store.name].data, written[store.name], store.data
    blocks, rows, width = data.shape
    at = np.broadcast_to(store.first.reshape(-1, 1) + np.arange(rows), (blocks, rows))
    batch, head = (np.broadcast_to(np.asarray(x).reshape(-1, 1), (blocks, rows)) for x in store.view)
    inside = at < out.shape[2]
    index = tuple(torch.from_numpy(np.ascontiguousarray(x[inside])) for x in (batch, head, at))
    values = data[torch.from_numpy(inside)].to(out.dtype)
    if out.ndim == 3:
        out[index] = values.squeeze(-1)
    else:
        out[..., store.column : store.column + width][index] = values
    part = count[..., store.column : store.column + width] if count.ndim == 4 else count
    part.index_put_(index, torch.ones(values.shape[: count.ndim - 2], dtype=torch.int32), accumulate=True)


def _add(sums: Tensor, view: tuple[Value, ...], data: Tensor) -> None:
    """`data` [blocks, rows, columns] to the views that blocks name, which may be the same."""
    index = tuple(torch.from_numpy(np.broadcast_to(np.asarray(x), len(data)).copy()) for x in view)
    sums.index_put_(index, data, accumulate=True)


def _check_written(kernel: Kernel, name: str, count: Tensor) -> None:
    wrong = (count != 1).nonzero()
    if len(wrong):
        b, h, i, *_ = place = wrong[0].tolist()
        times = int(count[tuple(place)])
        declared = next(f for f in kernel.params if f.name == name)
        message = f"row {i} of `{name}[{b}, {h}]` is written {times} times"
        raise CuError(Diagnostic("CU314", message, declared.span))
