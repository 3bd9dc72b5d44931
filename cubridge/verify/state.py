"""Rule: state of a query tile and of a row has a value before it is read, and row state follows the key tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cubridge.ir.diagnostics import Diagnostic, Note
from cubridge.ir.families import FORWARD
from cubridge.ir.nodes import Assign, Attr, Expr, Field, Function, If, Kernel, Name, Node, Stmt
from cubridge.ir.walk import walk

_BEFORE: Final[dict[str, tuple[str, ...]]] = {
    "row_init": (),
    "row_update": ("row_init",),
    "row_probs": ("row_init", "row_update"),
    "row_rescale": ("row_init", "row_update"),
    "row_finalize": ("row_init",),
}
"""Regions that have surely run before; a query tile without keys goes from row_init to row_finalize."""

_PER_KEY_TILE: Final = ("row_update", "row_probs")


def check_tile_state(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU208 for a field of the query tile that `tile_setup` leaves without a value, or reads before."""
    written: set[str] = set()
    setup = kernel.region("tile_setup")
    fields = {f.name for f in kernel.tile_state}
    for attr, reads in _accesses(setup.body, "tile"):
        if reads and attr.name in fields - written:
            yield Diagnostic("CU208", f"`tile.{attr.name}` is read before it is written", attr.span)
        if not reads:
            written.add(attr.name)
    for item in kernel.tile_state:
        if item.name not in written:
            message = f"`tile.{item.name}` has no value: `tile_setup` does not write it"
            yield Diagnostic("CU208", message, item.span, (Note("here", setup.span),))


def check_row_state(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU208 for a field of the row state that is read before it is written, is never read, or never follows the keys."""
    if kernel.family != FORWARD:
        return
    written = {name: _written(kernel.region(name)) for name in _BEFORE}
    for name, before in _BEFORE.items():
        region = kernel.region(name)
        known = set[str]().union(*(written[x] for x in before))
        for attr, reads in _accesses(region.body, "row"):
            if reads and attr.name not in known:
                known.add(attr.name)
                message = (
                    f"`row.{attr.name}` has no value here: {' or '.join(before) or 'nothing'} before does not write it"
                )
                yield Diagnostic("CU208", message, attr.span, (Note("this region", region.span),))
            if not reads:
                known.add(attr.name)
    for item in kernel.row_state:
        yield from _lifetime(kernel, item, written)


def check_score_state(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU208 for what is kept of a score, and `score` does not write or `score_grad` does not read."""
    for item in kernel.score_state:
        if item.name not in _written(kernel.region("score")):
            yield Diagnostic("CU208", f"`kept.{item.name}` has no value: `score` does not write it", item.span)
        if not any(a.name == item.name and reads for a, reads in _accesses(kernel.region("score_grad").body, "kept")):
            yield Diagnostic("CU208", f"`kept.{item.name}` is never read", item.span, help="drop it")


def _lifetime(kernel: Kernel, item: Field, written: dict[str, set[str]]) -> Iterator[Diagnostic]:
    read = any(a.name == item.name and reads for r in kernel.regions for a, reads in _accesses(r.body, "row"))
    if not read:
        yield Diagnostic("CU208", f"`row.{item.name}` is never read", item.span, help="drop it")
    elif not any(item.name in written[name] for name in _PER_KEY_TILE):
        help = "write it in `row_update` or `row_probs`; what does not depend on keys belongs into `tile_state`"
        yield Diagnostic("CU208", f"`row.{item.name}` never takes in a key tile", item.span, help=help)


def _written(region: Function) -> set[str]:
    """Fields that the region surely writes; what an `if` writes may be skipped."""
    return {s.target.name for s in region.body if isinstance(s, Assign) and isinstance(s.target, Attr)}


def _accesses(body: Sequence[Stmt], scope: str) -> Iterator[tuple[Attr, bool]]:
    """Reads (True) and writes of `scope.x` in order, values before targets."""
    for stmt in body:
        match stmt:
            case Assign(target, value):
                yield from _reads(value, scope)
                if isinstance(target, Attr) and target.base == Name(scope):
                    yield target, False
            case If(condition, then):
                yield from _reads(condition, scope)
                yield from _accesses(then, scope)
            case _:
                pass


def _reads(expr: Expr, scope: str) -> Iterator[tuple[Attr, bool]]:
    nodes: Iterator[Node] = walk(expr)
    return ((n, True) for n in nodes if isinstance(n, Attr) and n.base == Name(scope))
