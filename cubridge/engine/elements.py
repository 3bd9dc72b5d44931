"""Expressions of a spec at elements: over all of b, h, i, j at once, or at some of them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cubridge.ir.evaluate import by_name, evaluate
from cubridge.ir.nodes import Call, Expr, Index, IntLit, Name, Node
from cubridge.ir.walk import rewrite

_AXES = (("b", "B"), ("h", "Hq"), ("i", "Lq"), ("j", "Lk"))


def axis_grids(sizes: Mapping[str, int], device: torch.device | None = None) -> dict[str, Tensor]:
    """b [B, 1, 1, 1], h [1, Hq, 1, 1], i [1, 1, Lq, 1] and j [1, 1, 1, Lk]: what broadcasts to all elements."""
    return {
        name: torch.arange(sizes[size], device=device).view([-1 if n == axis else 1 for n in range(4)])
        for axis, (name, size) in enumerate(_AXES)
    }


def at_elements(expr: Expr, scope: Mapping[str, Any], dtype: torch.dtype | None = None) -> Tensor:
    """`expr` where `scope` gives sizes, captures and elements, as broadcast; in fp64 unless `dtype` says otherwise. Indices are
    clamped: the branch that a `where` drops may read out of range. Errors: CU301."""
    with fp64():
        return torch.as_tensor(evaluate(_clamped(expr, scope), by_name(scope)), dtype=dtype)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Generator[None]:
    """What numbers become here that are made tensors, and integers that meet a float."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


fp64 = partial(default_dtype, torch.float64)


def _clamped(expr: Expr, scope: Mapping[str, Any]) -> Expr:
    """`expr` with every index of a capture clamped into its extent."""

    def clamp(node: Node) -> Node:
        if not (isinstance(node, Index) and isinstance(node.base, Name) and node.base.id in scope):
            return node
        inside = tuple(
            Call("minimum", (Call("maximum", (x, IntLit(0))), IntLit(int(n) - 1)))
            for x, n in zip(node.indices, scope[node.base.id].shape, strict=True)
        )
        return Index(node.base, inside, span=node.span)

    return rewrite(expr, clamp)
