"""The scheduler: agents in turn, each as far as it gets, until all have left the kernel."""

from __future__ import annotations

from cubridge.engine.core.barriers import BarrierMachine
from cubridge.engine.core.deadlock import deadlock
from cubridge.engine.core.machine import A
from cubridge.ir.diagnostics import CuError


def run_agents(machine: BarrierMachine[A]) -> None:
    """Run a kernel to its end. Errors: CU250 where no agent can go on; what its steps raise."""
    order = machine.agents[::-1] if machine.policy.descending else machine.agents
    while not all(agent.done for agent in order):
        moved = [machine.advance(agent) for agent in order if not agent.done]
        if not any(moved) and not machine.land_one():
            raise CuError(deadlock(machine))
    while machine.land_one():
        pass
