"""Row state: adding fields, and dropping those that no output depends on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from cubridge.ir.nodes import TILE_ARGUMENTS, Assign, Attr, Expr, Field, FieldType, If, Kernel, Name, Stmt
from cubridge.ir.walk import walk
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.regions import assign, with_region

ROW_REGIONS: Final = ("row_init", "row_update", "row_probs", "row_rescale", "row_finalize")


def with_row_field(kernel: Kernel, name: str, kind: FieldType, start: Expr) -> Kernel:
    """The kernel with one more value per row, which begins as `start`."""
    kernel = replace(kernel, row_state=(*kernel.row_state, Field(name, kind)))
    init = kernel.region("row_init").body
    return with_region(kernel, "row_init", (*init, assign(Attr(Name("row"), name), start)))


@dataclass(frozen=True, slots=True)
class DropRowState(Pass):
    """Drop what a row keeps in vain.
    rewrite:   a field of row_state, and a local of a row region, that neither the weights nor the outputs depend on   -->   gone
    ensures:   the same weights, outputs and row statistics: a normalizer without a maximum loses the maximum and its rescale.
    It is for kernels that are written by hand: `rewrite-normalize` ends with it."""

    name: ClassVar[str] = "drop-row-state"

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        return with_needed_row_state(kernel)


def with_needed_row_state(kernel: Kernel) -> Kernel:
    """The kernel without the row state, and the locals of row regions, that nothing depends on."""
    live = _live_fields(kernel)
    if all(f.name in live for f in kernel.row_state):
        return kernel
    for name in ROW_REGIONS:
        kernel = with_region(kernel, name, _needed(kernel.region(name).body, live))
    return replace(kernel, row_state=tuple(f for f in kernel.row_state if f.name in live))


def _live_fields(kernel: Kernel) -> frozenset[str]:
    """The fields that weights, output or row statistics depend on, through any region and any number of key tiles."""
    bodies = [kernel.region(n).body for n in ROW_REGIONS]
    live: frozenset[str] = frozenset()
    while True:
        found = live.union(*(_fields(b) for body in bodies for b in _needed(body, live)))
        if found == live:
            return live
        live = found


def _needed(body: tuple[Stmt, ...], live: frozenset[str]) -> tuple[Stmt, ...]:
    """The statements that write an output, a live field, or a local that one of these reads."""
    kept: list[Stmt] = []
    locals: set[str] = set()
    for statement in reversed(body):
        match statement:
            case If(condition, then, ()):
                inner = _needed(then, live)
                if not inner:
                    continue
                statement = replace(statement, then=inner)
                locals |= _names([condition, *inner])
            case Assign(target, value):
                if not _is_wanted(target, live, locals):
                    continue
                locals |= _names([value])
            case _:
                locals |= _names([statement])
        kept.insert(0, statement)
    return tuple(kept)


def _is_wanted(target: Expr, live: frozenset[str], locals: set[str]) -> bool:
    match target:
        case Attr(Name("row"), name):
            return name in live
        case Name(name):
            return name in TILE_ARGUMENTS or name in locals
        case _:
            return True


def _names(nodes: Iterable[Stmt | Expr]) -> set[str]:
    return {n.id for node in nodes for n in walk(node) if isinstance(n, Name)}


def _fields(statement: Stmt) -> set[str]:
    """The row fields that a statement reads."""
    reads = statement.value if isinstance(statement, Assign) else statement
    return {n.name for n in walk(reads) if isinstance(n, Attr) and n.base == Name("row")}
