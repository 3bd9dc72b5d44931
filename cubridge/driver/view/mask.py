"""The mask of a reference at element and tile level, and how a kernel walks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from cubridge.driver.view.walked import example_captures
from cubridge.engine.elements import at_elements, axis_grids
from cubridge.ir.tile_shape import key_tile, query_tile, size_of
from cubridge.ir.walk import free_names
from cubridge.show.png import png
from cubridge.show.view import Mask, Plane

if TYPE_CHECKING:
    from cubridge.driver.adapted import Adapted
    from cubridge.driver.reference import TracedReference
    from cubridge.engine.values.walks import Walk
    from cubridge.ir.nodes import Expr, Kernel
    from cubridge.ir.spec import Shape

_PLANES: Final = 6
MOST_ELEMENTS: Final = 1 << 26
"""Of a mask that is drawn: they are all in memory at once."""
_PIXELS: Final = 1024
"""A side of the picture of elements; of longer ones, a pixel stands for several."""

Head = tuple[int, int]
Steps = tuple[tuple[int, bool], ...]


def mask_view(adapted: Adapted, work: Sequence[Walk]) -> Mask | None:
    """The mask at the example sizes, as the target walks it; None where it is too large to draw or the kernel does not show its
    tiles."""
    sizes = tile_sizes(adapted.target)
    if sizes is None or not work or elements(adapted.reference.attention.spec.mask, adapted.shape) > MOST_ELEMENTS:
        return None
    visible = visible_elements(adapted.reference, adapted.shape, adapted.dtype)
    return mask_of(visible, adapted.shape, sizes, steps_by_head(work))


def elements(mask: Expr, shape: Shape) -> int:
    """Elements of all planes that may differ."""
    read = free_names(mask)
    return shape.Lq * shape.Lk * (shape.B if "b" in read else 1) * (shape.Hq if "h" in read else 1)


def tile_sizes(kernel: Kernel) -> tuple[int, int] | None:
    """Query rows and keys of a tile."""
    rows, keys = query_tile(kernel), key_tile(kernel)
    return None if rows is None or keys is None else (size_of(kernel, rows), size_of(kernel, keys))


def visible_elements(reference: TracedReference, shape: Shape, dtype: str) -> Tensor:
    """[B or 1, Hq or 1, Lq, Lk]: an axis that the mask does not read has one entry."""
    scope = {**shape.sizes(), **axis_grids(shape.sizes()), **example_captures(reference, shape, dtype)}
    seen = at_elements(reference.attention.spec.mask, scope, torch.bool)
    seen = seen.reshape((1,) * (4 - seen.dim()) + tuple(seen.shape))
    return seen.expand(*seen.shape[:2], shape.Lq, shape.Lk)


def mask_of(
    visible: Tensor, shape: Shape, sizes: tuple[int, int], walked: Mapping[Head, Mapping[int, Steps]] | None = None
) -> Mask:
    """`walked`: for each batch and head, the steps of each query tile; without it, tiles are shown as a right kernel walks them."""
    heads: dict[tuple[object, ...], list[Head]] = {}
    batches, per_batch = visible.shape[:2]
    drawn: dict[tuple[object, ...], tuple[Tensor, Mapping[int, Steps]]] = {}
    for b in range(shape.B):
        for h in range(shape.Hq):
            at = (b if batches > 1 else 0, h if per_batch > 1 else 0)
            steps = {} if walked is None else walked.get((b, h), {})
            key = (_digest(visible, at), tuple(sorted(steps.items())))
            heads.setdefault(key, []).append((b, h))
            drawn.setdefault(key, (visible[at], steps))
    planes = [
        _plane(of_heads, sizes, None if walked is None else steps, _named(heads[key], shape))
        for key, (of_heads, steps) in list(drawn.items())[:_PLANES]
    ]
    return Mask(shape.Lq, shape.Lk, *sizes, tuple(planes), max(0, len(drawn) - _PLANES))


def _digest(visible: Tensor, at: Head) -> bytes | Head:
    """Equal for equal planes."""
    if tuple(visible.shape[:2]) == (1, 1):
        return at
    return visible[at].contiguous().numpy().tobytes()


def steps_by_head(work: Sequence[Walk]) -> dict[Head, dict[int, Steps]]:
    """Steps of each query tile, by batch and head, and by its first row."""
    found: dict[Head, dict[int, Steps]] = {}
    for tile in work:
        found.setdefault((tile.b, tile.h), {})[tile.q_start] = tile.steps
    return found


def _plane(visible: Tensor, sizes: tuple[int, int], walked: Mapping[int, Steps] | None, of: str) -> Plane:
    rows, keys = sizes
    some, every = (_tiles(visible, rows, keys, whole) for whole in (False, True))
    if walked is not None:
        every[:, -1] &= visible.shape[1] % keys == 0  # a kernel masks the keys past the end
    letters: list[str] = []
    steps: list[tuple[int, ...]] = []
    for x in range(len(some)):
        own = _right(some[x], every[x]) if walked is None else dict(walked.get(x * rows, ()))
        letters.append("".join(_letter(bool(some[x, n]), bool(every[x, n]), own.get(n)) for n in range(some.shape[1])))
        steps.append(tuple(own))
    scale = max(1, -(-max(visible.shape) // _PIXELS))
    return Plane(of, _pixels(visible, scale), scale, tuple(letters), tuple(steps))


def _tiles(visible: Tensor, rows: int, keys: int, whole: bool) -> Tensor:
    """[query tiles, key tiles]: are all elements of it visible, or is any."""
    lq, lk = visible.shape
    padded = pad(visible, (0, -lk % keys, 0, -lq % rows), value=whole)
    split = padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // keys, keys)
    return split.all(3).all(1) if whole else split.any(3).any(1)


def _right(some: Tensor, every: Tensor) -> dict[int, bool]:
    return {n: not bool(every[n]) for n in range(len(some)) if bool(some[n])}


def _letter(some: bool, every: bool, masked: bool | None) -> str:
    """As `CELLS` has it. `masked`: None where the tile is not visited."""
    if masked is None:
        return "!" if some else "."
    if not masked:
        return "#" if every else "!"
    return "f" if every else "+" if some else "o"


def _pixels(visible: Tensor, scale: int) -> str:
    some, every = (_tiles(visible, scale, scale, whole) for whole in (False, True))
    values = some.to(torch.uint8) + every.to(torch.uint8)
    return png([bytes(row) for row in values.numpy()])


def _named(heads: Sequence[Head], shape: Shape) -> str:
    """Batches and heads in words."""
    if len(heads) == shape.B * shape.Hq:
        return "every batch and head"
    by_heads: dict[tuple[int, ...], list[int]] = {}
    for b, of_batch in groupby(heads, key=lambda head: head[0]):
        by_heads.setdefault(tuple(h for _, h in of_batch), []).append(b)
    return "; ".join(
        f"{_count('batch', 'batches', bs, shape.B)}, {_count('head', 'heads', hs, shape.Hq)}"
        for hs, bs in by_heads.items()
    )


def _count(one: str, many: str, numbers: Sequence[int], of: int) -> str:
    if len(numbers) == of:
        return f"every {one}"
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{many} {numbers[0]} to {numbers[-1]}"
    return f"{one if len(numbers) == 1 else many} {', '.join(map(str, numbers))}"
