"""The order engine: no tensors, tiny trip counts. Agents are warps and the async proxy, with vector clocks over what they share.

A run without a race speaks for all schedules, as control does not depend on timing: which phase a wait sees is checked to be the
same in all of them. Two unlike schedules are run all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cubridge.engine.core.code import compile_body
from cubridge.engine.core.operands import Value
from cubridge.engine.core.scheduler import run_agents
from cubridge.engine.order.run import OrderRun, Trace
from cubridge.engine.order.work import Scenario
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Counters, Kernel
from cubridge.ir.region_types import family_of
from cubridge.ir.tile_shape import head_dim
from cubridge.ir.workers import takes_several


def check_order(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """The order faults of a kernel: the first of each scenario, each named once. Empty: none.

    Covered: 0 to 4 key tiles, several work tiles in a row and none at all, steps with and without masks, with and without LSE,
    work dealt by counters and in equal shares."""
    return run_order(kernel)[0]


def run_order(kernel: Kernel) -> tuple[tuple[Diagnostic, ...], tuple[Trace, ...]]:
    """The order faults, and what became of every tile in each scenario that has none."""
    found: list[Diagnostic] = []
    traces: list[Trace] = []
    try:
        code = compile_body(kernel, OrderRun)
    except CuError as error:
        return error.diagnostics, ()
    for scenario in scenarios(kernel):
        try:
            machine = OrderRun(kernel, code, scenario, sizes(kernel, scenario))
            run_agents(machine)
            machine.check_end()
            traces.append(machine.trace())
        except CuError as error:
            found += [d for d in error.diagnostics if not any((d.code, d.span) == (f.code, f.span) for f in found)]
    return tuple(found), tuple(traces)


def scenarios(kernel: Kernel) -> tuple[Scenario, ...]:
    """What a kernel is run on; a kernel whose blocks take one work tile each gets one count at a time."""
    if not takes_several(kernel):
        late = {"descending": True, "one_step": True}
        counts = [Scenario((n,), lse=n % 2 == 1, dealt=False) for n in range(5)]
        return (*counts, replace(counts[3], lse=False, **late), replace(counts[4], lse=True, **late))
    dealt = any(isinstance(f.type, Counters) for f in kernel.params)
    return (
        Scenario((3, 2, 0, 1, 1, 3), lse=True, dealt=dealt, land_at_once=True),
        Scenario((1, 4, 2, 2, 0, 0, 3, 1), lse=False, dealt=False, descending=True, one_step=True),
        Scenario((), lse=True, dealt=dealt),
        Scenario((0,), lse=True, dealt=False),
    )


_MANY_ROWS: Final = 10_000_000
"""Query tiles enough that the number of a tile in all heads tells which tile and which head it is."""


def sizes(kernel: Kernel, scenario: Scenario) -> dict[str, Value]:
    """Constants of the kernel, and sizes of a launch with as many work tiles as the scenario has: one for each batch entry."""
    heads, rows = (2, _MANY_ROWS) if family_of(kernel).walks_heads else (1, 1)
    launch = {"B": scenario.total, "Hq": heads, "Hk": 1, "Lq": rows, "Lk": 1, "D": head_dim(kernel) or 64}
    return {"SM_COUNT": Scenario.BLOCKS, "GROUP_HEADS": 1} | launch | kernel.constant_values
