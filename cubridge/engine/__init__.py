"""CuIR executed, two ways: `order` finds races, losses and deadlocks without tensors, `values` computes on torch tiles.

Enters: a kernel and a launch, or a spec (`dense`). Leaves: faults at their statements; outputs as tensors.
Open first: `core/machine.py`, which steps the agents of both engines through a kernel body."""
