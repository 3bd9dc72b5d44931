"""Wrong kernels of another kind than wrong specs: right in their mask, wrong in the lists of tiles that they walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final

from cubridge.engine.dense import spec_values
from cubridge.engine.values.launch import Launch, parameters
from cubridge.ir.nodes import SIZES, Binary, Call, Expr, Index, IntLit, Kernel, Name, Node, TileList
from cubridge.ir.region_types import family_of
from cubridge.ir.tile_shape import size_of
from cubridge.ir.walk import rewrite
from cubridge.judge.runners import LAUNCH_CONSTANTS
from cubridge.passes.regions import param, tile, with_region
from cubridge.passes.shape import tile_shape
from cubridge.passes.tile_check import visits

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.spec import AttentionSpec
    from cubridge.judge.problem import Problem

    Known = dict[Expr, bool | int | float | Tensor]

Mutation = Callable[[Kernel], Kernel]


def list_mutants(kernel: Kernel, spec: AttentionSpec, problems: list[Problem]) -> Iterator[tuple[str, Kernel, Problem]]:
    """Each wrong walk of the lists of `kernel`, with the first of `problems` whose result it moves beyond the bound."""
    for name, wrong in wrong_walks(kernel):
        shown = next((p for p in problems if _moves(wrong, spec, p)), None)
        if shown is not None:
            yield name, wrong, shown


def wrong_walks(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Each wrong walk of the lists of `kernel`, by name; none where it has no lists."""
    if any(isinstance(f.type, TileList) for f in kernel.params):
        yield from ((name, mutate(kernel)) for name, mutate in MUTATIONS.items())


def _last_tile_lost(kernel: Kernel) -> Kernel:
    _, counts, *_ = family_of(kernel).walk
    count = kernel.region(counts).result
    assert count is not None
    return with_region(kernel, counts, (), Call("maximum", (Binary("-", count, IntLit(1)), IntLit(0))))


def _masked_tile_as_full(kernel: Kernel) -> Kernel:
    def change(node: Node) -> Node:
        return Binary("+", node, IntLit(1)) if isinstance(node, Name) and node.id == "t" else node

    *_, masked = family_of(kernel).walk
    return _changed(kernel, masked, change)


def _next_tile(kernel: Kernel) -> Kernel:
    """The list of the next query tile; of a backward kernel that of the next key tile."""
    shape, origin = tile_shape(kernel), family_of(kernel).origin
    length, size = (Name("Lq"), shape.queries) if origin == tile("q_start") else (Name("Lk"), shape.keys)
    following = Call("minimum", (Binary("+", origin, size), Binary("-", length, IntLit(1))))
    return _changed(kernel, family_of(kernel).walk[0], lambda node: following if node == origin else node)


def _next_batch(kernel: Kernel) -> Kernel:
    following = Binary("%", Binary("+", tile("b"), IntLit(1)), Name("B"))
    return _changed(kernel, family_of(kernel).walk[0], lambda node: following if node == tile("b") else node)


def _changed(kernel: Kernel, region: str, change: Callable[[Node], Node]) -> Kernel:
    return replace(kernel, regions=tuple(rewrite(r, change) if r.name == region else r for r in kernel.regions))


MUTATIONS: Final[dict[str, Mutation]] = {
    "last listed tile lost": _last_tile_lost,
    "masked tile walked as full": _masked_tile_as_full,
    "list of the next tile": _next_tile,
    "list of the next batch": _next_batch,
}


# ---- does it matter --------------------------------------------------------------------------------------------------

_SEEN: Final = "$seen"


def _moves(wrong: Kernel, spec: AttentionSpec, problem: Problem) -> bool:
    """Is what `wrong` computes, were it right in all else, beyond the bound of the problem."""
    inputs = problem.q, problem.k, problem.v
    visible = spec_values(spec, *inputs, problem.captures, derivatives=False).visible
    index = tuple(Name(n) for n in "bhij")
    mask = Index(Name(_SEEN), index)
    rows = tuple(replace(r, over=mask) if r.over == spec.mask else r for r in spec.rows)
    captures = {**problem.captures, _SEEN: _seen(wrong, problem, visible)}
    values = spec_values(replace(spec, mask=mask, rows=rows), *inputs, captures, derivatives=False)
    return not problem.judge(values.out, values.lse).accepted


def _seen(kernel: Kernel, problem: Problem, visible: Tensor) -> Tensor:
    """[B, Hq, Lq, Lk]: the keys that count where `kernel` walks its lists and hides all but `visible` ones in masked tiles."""
    shape = problem.shape
    launch = Launch(shape, problem.captures, LAUNCH_CONSTANTS)
    params = parameters(kernel, {"q": problem.q, "k": problem.k, "v": problem.v}, launch)
    known: Known = {Name(n): shape.sizes()[n] for n in SIZES}
    known.update((Name(n), v) for n, v in kernel.constant_values.items())
    known.update((param(n), v) for n, v in params.items())
    tiles = tile_shape(kernel)
    rows, keys = size_of(kernel, tiles.queries), size_of(kernel, tiles.keys)
    seen = visible.new_zeros(visible.shape)
    for b, h, q_start in product(range(shape.B), range(shape.Hq), range(0, shape.Lq, rows)):
        fields = {"b": b, "h": h, "hk": h // (shape.Hq // shape.Hk), "q_start": q_start}
        here = {**known, **{tile(n): v for n, v in fields.items()}}
        for visit in visits(kernel, here):
            part = (b, h, slice(q_start, q_start + rows), slice(visit.tile * keys, (visit.tile + 1) * keys))
            seen[part] = visible[part] if visit.masked else True
    return seen
