"""Programs without one of their ordering instructions."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cubridge.backend.ptx.program import Program, Value

ORDERING: Final = (
    "bar.", "barrier.", "fence.", "membar.", "cp.async.commit", "cp.async.wait", "cp.async.bulk.commit", "cp.async.bulk.wait",
    "mbarrier.arrive", "mbarrier.try_wait", "wgmma.fence", "wgmma.commit", "wgmma.wait",
)  # fmt: skip


def ordering_sites(program: Program) -> list[int]:
    return [pc for pc, found in enumerate(program.code) if found.name.startswith(ORDERING)]


def without(program: Program, pc: int) -> Program:
    """A branch to the next instruction stands in its place; a test of a barrier says at once that the phase has ended."""
    found = program.code[pc]
    if "try_wait" in found.name:
        nothing = replace(found, name="mov.pred", operands=(found.operands[0], Value(1)))
    else:
        nothing = replace(found, name="bra", guard=None, operands=(), target=pc + 1)
    return replace(program, code=(*program.code[:pc], nothing, *program.code[pc + 1 :]))
