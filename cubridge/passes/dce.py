"""dce: locals, parameters and fields that nothing reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from cubridge.ir.nodes import TILE_ARGUMENTS, Assign, Attr, Function, If, Kernel, Name, Node, Stmt, TileList
from cubridge.ir.walk import walk
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.host_params import renumbered
from cubridge.passes.regions import with_region
from cubridge.passes.wide import without_unread


@dataclass(frozen=True, slots=True)
class DropDeadCode(Pass):
    """Drop what nothing reads.
    rewrite:   a local of a region, a field of tile_state, a parameter of the `params` region that is never read   -->   gone"""

    name: ClassVar[str] = "dce"
    example: ClassVar[str] = 'rewrite-normalize{weight="maximum(x, 0.0)",finalize="acc"},dce'

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        for region in kernel.regions:
            kernel = with_region(kernel, region.name, _live(region), region.result)
        kernel = _without_tile_fields(kernel)
        used = _fields("p", (*kernel.regions, kernel.schedule, *kernel.body))
        used |= _fields("p", (f for f in kernel.params if f.name in used and isinstance(f.type, TileList)))
        return renumbered(without_unread(kernel, frozenset(f.name for f in kernel.params if not f.fixed) - used))


def _live(region: Function) -> tuple[Stmt, ...]:
    """The statements without assignments to locals that nothing after them reads."""
    needed = set[str]() if region.result is None else _names([region.result])
    kept: list[Stmt] = []
    for statement in reversed(region.body):
        match statement:
            case Assign(Name(name), value):
                if name not in needed and name not in TILE_ARGUMENTS:
                    continue
                needed |= _names([value])
            case If(condition, then, _):
                needed |= _names([condition, *then])
            case _:
                needed |= _names([statement])
        kept.insert(0, statement)
    return tuple(kept)


def _without_tile_fields(kernel: Kernel) -> Kernel:
    read = _fields("tile", (r for r in kernel.regions if r.name != "tile_setup"))
    setup = kernel.region("tile_setup").body
    read |= _fields("tile", (s.value for s in setup if isinstance(s, Assign)))
    dead = {f.name for f in kernel.tile_state} - read
    if not dead:
        return kernel
    body = [s for s in setup if not (isinstance(s, Assign) and isinstance(s.target, Attr) and s.target.name in dead)]
    kernel = with_region(kernel, "tile_setup", body)
    return replace(kernel, tile_state=tuple(f for f in kernel.tile_state if f.name not in dead))


def _names(nodes: Iterable[Node]) -> set[str]:
    return {n.id for node in nodes for n in walk(node) if isinstance(n, Name)}


def _fields(scope: str, nodes: Iterable[Node]) -> set[str]:
    return {n.name for node in nodes for n in walk(node) if isinstance(n, Attr) and n.base == Name(scope)}
