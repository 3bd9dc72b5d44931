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
from cubridge.engine.values.machine import Code, Split, Watch, compile_function
from cubridge.engine.values.regions import compile_region
from cubridge.engine.values.run import ValueRun
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Kernel
from cubridge.ir.vocabulary import SCHEDULE, VALUE_REGIONS


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
    params = parameters(kernel, dict(zip("qkv", inputs, strict=True)), launch)
    names = host_names(kernel, launch)
    with one_thread(), np.errstate(divide="raise", invalid="raise"):
        code = prepare(kernel)
        grid = launch.grid or choose_grid(code, params, names, launch.shape)
        written = {name: torch.zeros(p.data.shape[:3], dtype=torch.int32) for name, p in _outputs(params).items()}
        waiting = groups_alike(code, params, names, grid)
        while waiting:
            waiting += _run_group(ValueRun(code, params, names, waiting.pop(), grid[0], policy), params, written, watch)
    for name, count in written.items():
        _check_written(kernel, name, count)
    lse = params.get("lse")
    return params["o"].data, lse.data if isinstance(lse, GlobalTensor) else None


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
        _write(params, written, *store)
    return []


def prepare(kernel: Kernel) -> Code:
    scalar = (*VALUE_REGIONS, SCHEDULE)
    functions = {f.name: compile_function(f) for f in (*kernel.regions, kernel.schedule) if f.name in scalar}
    regions = {f.name: compile_region(f) for f in kernel.regions if f.name not in scalar}
    return Code(kernel, compile_body(kernel, ValueRun), regions, functions, compile_expr(kernel.row_origin))


def _outputs(params: Mapping[str, Value]) -> dict[str, GlobalTensor]:
    return {name: params[name] for name in ("o", "lse") if isinstance(params.get(name), GlobalTensor)}


def _write(
    params: Mapping[str, Value],
    written: dict[str, Tensor],
    name: str,
    view: tuple[Value, ...],
    first: np.ndarray,
    data: Tensor,
) -> None:
    """Rows from `first` on of view [batch, head]; those past the end are dropped."""
    out = params[name]
    blocks, rows = data.shape[:2]
    at = np.broadcast_to(first.reshape(-1, 1) + np.arange(rows), (blocks, rows))
    batch, head = (np.broadcast_to(np.asarray(x).reshape(-1, 1), (blocks, rows)) for x in view)
    inside = at < out.data.shape[2]
    index = tuple(torch.from_numpy(np.ascontiguousarray(x[inside])) for x in (batch, head, at))
    values = data[torch.from_numpy(inside)]
    out.data[index] = values.squeeze(-1).to(out.data.dtype) if out.data.ndim == 3 else values.to(out.data.dtype)
    written[name].index_put_(index, torch.ones(len(index[0]), dtype=torch.int32), accumulate=True)


def _check_written(kernel: Kernel, name: str, count: Tensor) -> None:
    wrong = (count != 1).nonzero()
    if len(wrong):
        b, h, i = wrong[0].tolist()
        times = int(count[b, h, i])
        declared = next(f for f in kernel.params if f.name == name)
        message = f"row {i} of `{name}[{b}, {h}]` is written {times} times"
        raise CuError(Diagnostic("CU314", message, declared.span))
