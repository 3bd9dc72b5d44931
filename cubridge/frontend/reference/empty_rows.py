"""Rows that see no key where the example has none: at other lengths, or for other values of what the mask reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from cubridge.frontend.reference.captures import Input
from cubridge.frontend.reference.remarks import EmptyRows
from cubridge.frontend.reference.traced import Traced
from cubridge.frontend.reference.visibility import rows_without_lse
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Shape
from cubridge.ir.walk import free_names

_FAR: Final = 1 << 20
"""Past every position."""


def random_inputs(shape: Shape, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v in fp64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(heads: int, length: int) -> Tensor:
        return 1.5 * torch.randn(shape.B, heads, length, shape.D, generator=generator, dtype=torch.float64)

    return draw(shape.Hq, shape.Lq), draw(shape.Hk, shape.Lk), draw(shape.Hk, shape.Lk)


def other_empty_rows(traced: Traced, shape: Shape) -> Iterator[tuple[str, EmptyRows]]:
    """What makes such rows, and what the reference gives there. `shape`: one at which it runs."""
    for lengths in ((5, 2), (9, 9), (1, 3)):
        short = replace(shape, Lq=lengths[0], Lk=lengths[1])
        if traced.meets_preconditions(short):
            yield from _rows(traced, short, {}, "")
    read = _arguments_of_mask(traced)
    if read:
        names = ", ".join(f"`{n}`" for n in read)
        for changed in _other_values(read, traced.extra(shape)):
            yield from _rows(traced, shape, changed, f", as {names} may have it")


def _arguments_of_mask(traced: Traced) -> list[str]:
    spec = traced.spec
    names = frozenset[str]().union(*(free_names(e) for e in (spec.mask, *(r.over for r in spec.rows))))
    found = {n for c in spec.captures if c.name in names for n in traced.inputs_of(c.name)}
    return [n for n in traced.assembled.lifter.recording.examples if n in found]


def _other_values(names: list[str], extra: Mapping[str, Input]) -> Iterator[dict[str, Input]]:
    """All as small as may be, all as large, and no two alike."""
    for fill in (lambda n: 0, lambda n: _FAR, lambda n: n):
        yield {name: _filled(extra[name], fill(n)) for n, name in enumerate(names)}


def _filled(value: Input, number: int) -> Input:
    if not isinstance(value, Tensor):
        return type(value)(number)
    if value.dtype is torch.bool:
        return torch.full_like(value, number > 0)
    info = torch.finfo(value.dtype) if value.is_floating_point() else torch.iinfo(value.dtype)
    return torch.full_like(value, min(number, info.max))


def _rows(traced: Traced, shape: Shape, changed: Mapping[str, Input], why: str) -> Iterator[tuple[str, EmptyRows]]:
    q, k, v = random_inputs(shape, 0)
    sizes = shape.sizes()
    try:
        extra = {**traced.extra(shape), **changed}
        captures = traced.captures(sizes, {**extra, "q": q, "k": k, "v": v}, wide=True)
        empty = traced.empty_rows(sizes, captures)
        if bool(empty.any()):
            found = traced.oracle_values(q, k, v, extra, empty, rows_without_lse(traced.spec, sizes, captures))
            yield why, EmptyRows(found.at_empty, found.lse_at_empty, float(v.abs().max()))
    except (CuError, RuntimeError, IndexError, ValueError):
        return  # values that no call may have, or a shape that does not fit
