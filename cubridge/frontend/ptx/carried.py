"""What the loop over key tiles carries in registers: where slices of an iteration, and of what follows the loop, end."""

from __future__ import annotations

from cubridge.frontend.ptx.floats import is_float
from cubridge.frontend.ptx.loops import KeyLoop
from cubridge.frontend.ptx.reach import Reach, RegisterKey
from cubridge.frontend.ptx.slices import Boundary, Key, Slices
from cubridge.ir.trace import LANES, Register


def carried_registers(reach: Reach, loop: KeyLoop, warp: int) -> tuple[RegisterKey, ...]:
    """Registers of floats that are written before the loop and in it."""
    start, stop = loop.starts[warp][0], loop.stops[warp]
    found: list[RegisterKey] = []
    for (of, key), steps in reach.by_register.items():
        if of != warp or key[0]:
            continue
        before = [n for n in steps if n < start]
        inside = [n for n in steps if start <= n < stop]
        if (
            before
            and inside
            and any(is_float(reach.trace.code[reach.trace.steps[n].at].name) for n in (before[-1], inside[-1]))
        ):
            found.append(key)
    return tuple(found)


def boundary(slices: Slices, loop: KeyLoop, warp: int, step: int) -> Boundary:
    """What is carried past `step`, by whatever gave it to the register: at the end of the loop, also by what made it there."""
    reach = slices.reach
    found: dict[Key, RegisterKey] = {}
    made: dict[Key, RegisterKey] = {}
    for register in carried_registers(reach, loop, warp):
        for lane in range(LANES):
            written = reach.register(warp, register, lane, step)
            if written is None:
                continue
            found.setdefault((written, reach.result_index(written, Register(register[1], 4)), lane), register)
            root = slices.root(step, Register(register[1], 4), lane, warp) if step >= loop.stops[warp] else None
            if root is not None and root[0] >= loop.starts[warp][0]:
                made.setdefault(root, register)
    return Boundary(range(step), {**made, **found})


def cut(slices: Slices, loop: KeyLoop, warp: int, step: int) -> Slices:
    """Slices of the same run that end at a step."""
    return Slices(slices.reach, slices.given, boundary(slices, loop, warp, step))
