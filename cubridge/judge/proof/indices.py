"""Captured tensors are read within their extents: in the last rows of a query tile and the last keys of a key tile too, which lie
past the lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cubridge.ir.nodes import Assign, Call, Captured, Expr, If, Index, Name, Node, Stmt, TileList, Unary
from cubridge.ir.walk import children, free_names, substitute
from cubridge.judge.proof import smt
from cubridge.judge.proof.integers import Integers
from cubridge.judge.proof.regions import Execution, Regions
from cubridge.judge.proof.smt import Claim, Number
from cubridge.judge.proof.unproved import Unproved

_REGIONS: Final = ("tile_setup", "score", "mask", "row_init", "row_update", "row_probs", "row_rescale", "row_finalize")
_OF_TILES: Final = {"i": Name("row of the tile"), "j": Name("key of the tile")}
_Guards = tuple[Expr, ...]


def check_indices(regions: Regions, integers: Integers) -> bool:
    """Does an index read the key; it is within where key tiles begin before the last key. Errors: Unproved for an index that may
    be outside."""
    loads = [*dict.fromkeys(_loads(regions))]
    for index, guards in loads:
        _check(regions, _of_tiles(regions, integers), index, guards)
    return any("j" in free_names(x) for index, _ in loads for x in index.indices)


def _of_tiles(regions: Regions, integers: Integers) -> Integers:
    """With what is known of rows and keys of tiles that are read: those that begin within the lengths."""
    found = Integers(integers.captures, integers.head_dim, integers.largest, [*integers.facts])
    places = (("row of the tile", "q_start", regions.rows, "Lq"), ("key of the tile", "kv_start", regions.keys, "Lk"))
    for name, first, size, length in places:
        start, number = found.unknown(first), found.unknown(f"number of {first}")
        found.facts += [
            smt.compared("==", start, number * size),
            smt.between(smt.whole(0), start, found.unknown(length)),
            smt.between(start, found.unknown(name), start + size),
        ]
    found.facts.append(smt.between(smt.whole(0), found.unknown("hk"), found.unknown("Hk")))
    return found


def _check(regions: Regions, integers: Integers, index: Index, guards: _Guards) -> None:
    assert isinstance(index.base, Name)
    extents = _extents(regions, index.base.id, integers)
    given = [*_known(integers, guards)]
    for x, extent in zip(index.indices, extents, strict=True):
        inside = smt.between(smt.whole(0), integers.integer(substitute(x, _OF_TILES)), extent)
        if not integers.holds(inside, *given):
            raise Unproved(f"an index of `{index.base.id}` may be outside of its extents")


def _known(integers: Integers, guards: _Guards) -> Iterator[Claim]:
    """Guards that the solver knows; to leave out others is sound."""
    for guard in guards:
        try:
            yield integers.boolean(substitute(guard, _OF_TILES))
        except Unproved:
            continue


def _extents(regions: Regions, name: str, integers: Integers) -> list[Number]:
    """Those of a captured tensor, the last with its padding."""
    fields = (f.type for f in regions.kernel.params if regions.captures.get(f.name) == name)
    kind = next(f for f in fields if isinstance(f, Captured))
    *extents, last = (integers.integer(e) for e in kind.extents)
    return [*extents, -smt.floor_div(-last, smt.whole(kind.pad)) * kind.pad]


# ---- what is read ----------------------------------------------------------------------------------------------------


def _loads(regions: Regions) -> Iterator[tuple[Index, _Guards]]:
    """Every load of a captured tensor, with the conditions under which it is made. A value of an earlier statement was read
    there, whatever is asked later."""
    for region in _REGIONS:
        execution = Execution(regions, {} if region == "tile_setup" else dict(regions.tile))
        if region == "tile_setup":
            execution.places |= {p: v for p, v in regions.tile.items() if isinstance(v, Name)}
        yield from _of_body(execution, regions.kernel.region(region).body)
    for field in regions.kernel.params:
        if isinstance(field.type, TileList):
            return  # a launch checks what it reads to make lists


def _of_body(execution: Execution, body: tuple[Stmt, ...]) -> Iterator[tuple[Index, _Guards]]:
    for statement in body:
        match statement:
            case Assign(_, value):
                yield from _in(execution.formula(value), ())
                execution.run((statement,))
            case If(_, then, _):
                yield from _of_body(execution, then)
            case _:
                pass


def _in(node: Node, guards: _Guards) -> Iterator[tuple[Index, _Guards]]:
    match node:
        case Call("where", (condition, then, otherwise)):
            yield from _in(condition, guards)
            yield from _in(then, (*guards, condition))
            yield from _in(otherwise, (*guards, Unary("~", condition)))
        case Index():
            yield node, guards
            for x in node.indices:
                yield from _in(x, guards)
        case _:
            for child in children(node):
                yield from _in(child, guards)
