"""A key sequence against its mask, tile by tile: nothing visible is skipped, nothing masked is walked as full.

The judge is the three-valued evaluation of `tiles`, over smaller and smaller parts of a tile where it does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final

from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate
from cubridge.ir.nodes import (
    SIZES,
    Assign,
    Attr,
    Binary,
    Expr,
    Function,
    Index,
    Kernel,
    Name,
    Node,
    Record,
    Row,
    Scalar,
)
from cubridge.ir.region_types import family_of
from cubridge.ir.walk import free_names, rewrite, walk
from cubridge.passes.shape import tile_shape
from cubridge.passes.tiles import Box, Interval, Truth, truth

if TYPE_CHECKING:
    from torch import Tensor

    Names = dict[Expr, bool | int | float | Tensor]

Values = Mapping[Expr, "bool | int | float | Tensor"]
"""Integers by the expression that they stand for: sizes, constants, fields of the tile, parameters; and lists of key tiles."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Key tile `tile` is visited, and masked or not."""

    tile: int
    masked: bool


@dataclass(frozen=True, slots=True)
class TileFault:
    """A tile that the sequence gets wrong: `what` is "skipped" or "unmasked"; of lists also as `list_fault` says."""

    what: str
    q_start: int
    tile: int
    values: Values


def visits(kernel: Kernel, values: Values) -> list[Visit]:
    """The key tiles that the query tile of `values` visits, in order; of a backward kernel the query tiles of a key tile."""
    family = family_of(kernel)
    sequence, count, tile, masked = map(kernel.region, family.walk)
    keys = _record(sequence, values, Name(family.sequence))
    steps = ({**keys, Name("t"): t} for t in range(_result(count, keys)))
    return [Visit(_result(tile, s), bool(_result(masked, s))) for s in steps]


def _record(region: Function, values: Values, scope: Name) -> Names:
    names = _run(region, values)
    assert isinstance(region.result, Record)
    fields = {Attr(scope, f.name): _number(f.value, names) for f in region.result.fields}
    return {**values, **fields}


def _result(region: Function, values: Values) -> int:
    assert region.result is not None
    return _number(region.result, _run(region, values))


def _run(region: Function, values: Values) -> Names:
    names = dict(values)
    for statement in region.body:
        assert isinstance(statement, Assign)
        names[statement.target] = _number(statement.value, names)
    return names


def _number(expr: Expr, values: Values) -> int:
    return int(evaluate(expr, lambda node: values[node]))


# ---- the check -------------------------------------------------------------------------------------------------------

_SCOPES: Final = (Name("p"), Name("tile"))
_LENGTHS: Final = ((1, 1), (1, 300), (300, 1), (257, 257), (130, 400), (400, 130))
_UNKNOWN_VALUES: Final = (0, 70)


def tile_fault(kernel: Kernel, predicate: Expr) -> TileFault | None:
    """The first fault of the key sequence of `kernel` for mask `predicate`, over small lengths; None if there is none.
    Values that only a launch knows take a few small numbers; data of single rows and keys is unknown."""
    kernel, predicate, loads = _without_loads(kernel, predicate)
    shape = tile_shape(kernel)
    constants: Names = {Name(c.name): c.value for c in kernel.constants if isinstance(c.value, int)}
    rows, keys = _number(shape.queries, constants), _number(shape.keys, constants)
    read = [*_launch_values(kernel, predicate), *loads]
    known = {name: host for name, host in _host_values(kernel).items() if name in read}
    unknown = [x for x in read if x not in known]
    for (lq, lk), given in product(_LENGTHS, _UNKNOWN_VALUES if unknown else (0,)):
        values = {**constants, **_sizes(lq, lk), **dict.fromkeys(unknown, given)}
        try:
            values |= {name: _number(host, values) for name, host in known.items()}
        except CuError:  # a division by Lq // 4, say: the mask has no meaning at these lengths
            continue
        if _divides_by_zero(predicate, values):
            continue
        for q_start in range(0, lq, rows):
            tile = {**values, Attr(Name("tile"), "q_start"): q_start}
            fault = _tile_fault(kernel, predicate, tile, (rows, keys, lq, lk))
            if fault is not None:
                return fault
    return None


def _divides_by_zero(predicate: Expr, values: Values) -> bool:
    """Is a divisor that a launch knows 0."""
    divisors = [n.right for n in walk(predicate) if isinstance(n, Binary) and n.op in ("//", "%")]
    known = [
        d for d in divisors if all(n in values for n in walk(d) if isinstance(n, Name | Attr) and n not in _SCOPES)
    ]
    return any(_number(d, values) == 0 for d in known)


def _without_loads(kernel: Kernel, predicate: Expr) -> tuple[Kernel, Expr, list[Name]]:
    """Both with names for the elements of captured tensors that are the same for a whole query tile."""
    region = kernel.region("key_sequence")
    loads = dict.fromkeys(n for part in (predicate, region) for n in walk(part) if isinstance(n, Index))
    fixed = {x: Name(f"load_{n}") for n, x in enumerate(loads) if not free_names(x) & {"i", "j"}}

    def change(node: Node) -> Node:
        return fixed.get(node, node) if isinstance(node, Index) else node

    regions = tuple(rewrite(r, change) if r.name == "key_sequence" else r for r in kernel.regions)
    return replace(kernel, regions=regions), rewrite(predicate, change), [*fixed.values()]


def _sizes(lq: int, lk: int) -> dict[Expr, int]:
    sizes = {"B": 1, "Hq": 4, "Hk": 2, "Lq": lq, "Lk": lk, "D": 64}
    return {Name(n): v for n, v in sizes.items()}


def _launch_values(kernel: Kernel, predicate: Expr) -> Iterator[Expr]:
    """What the key sequence and the mask read beside sizes, constants and the place in the tile."""
    rows = {f.name for f in kernel.tile_state if isinstance(f.type, Row)} | {"q_start"}
    reads = (n for part in (predicate, kernel.region("key_sequence")) for n in walk(part) if isinstance(n, Attr))
    yield from dict.fromkeys(n for n in reads if n.base == Name("p") or (n.base == Name("tile") and n.name not in rows))


def _host_values(kernel: Kernel) -> dict[Expr, Expr]:
    """Parameters that follow from the sizes, with their host expressions."""
    hosts = {f.name: f.type.host for f in kernel.params if isinstance(f.type, Scalar) and f.type.host is not None}
    return {Attr(Name("p"), n): host for n, host in hosts.items() if free_names(host) <= {*SIZES}}


def _tile_fault(kernel: Kernel, predicate: Expr, values: Values, extent: tuple[int, int, int, int]) -> TileFault | None:
    rows, keys, lq, lk = extent
    q_start = int(values[Attr(Name("tile"), "q_start")])
    last = min(q_start + rows, lq) - 1
    names: dict[Expr, Interval] = {e: Interval(v, v) for e, v in values.items() if isinstance(v, int | float)}
    seen = {v.tile: v.masked for v in visits(kernel, values)}
    for tile in range(-(-lk // keys)):
        names[Name("i")] = Interval(q_start, last)
        names[Name("j")] = Interval(tile * keys, tile * keys + keys - 1)
        if tile not in seen and any(t is not Truth.NEVER for t in _parts(predicate, names)):
            return TileFault("skipped", q_start, tile, values)
        if seen.get(tile) is False and any(t is not Truth.ALWAYS for t in _parts(predicate, names)):
            return TileFault("unmasked", q_start, tile, values)
    return None


def _parts(predicate: Expr, names: Mapping[Expr, Interval]) -> Iterator[Truth]:
    """The truth over parts of the box, split until each is decided or a single element."""
    known = truth(predicate, Box(names))
    axis = max((Name("i"), Name("j")), key=lambda a: names[a].high - names[a].low)
    low, high = int(names[axis].low), int(names[axis].high)
    if known is not Truth.UNKNOWN or low == high:
        yield known
        return
    middle = (low + high) // 2
    for half in (Interval(low, middle), Interval(middle + 1, high)):
        yield from _parts(predicate, {**names, axis: half})
