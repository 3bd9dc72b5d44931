"""Which rows of a problem see a key, by the mask of the spec and by scores that captures make -inf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from cubridge.ir.evaluate import evaluate
from cubridge.ir.nodes import Call, Expr, Index, IntLit, Name
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import free_names, map_children
from cubridge.ir.walk import walk as descendants


def empty_rows(spec: AttentionSpec, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> Tensor:
    """[B, Hq, Lq], true where no key is visible."""
    full = (sizes["B"], sizes["Hq"], sizes["Lq"], sizes["Lk"])
    visible = torch.as_tensor(_over_axes(spec.mask, sizes, captures)).expand(full)
    if any(c.dtype == "f32" and c.extents and _reads(spec.score, c.name) for c in spec.captures):
        score = torch.as_tensor(_over_axes(spec.score, sizes, captures), dtype=torch.float64)
        visible = visible & (score > -torch.inf).expand(full)
    return ~visible.any(-1)


def rows_without_lse(spec: AttentionSpec, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> Tensor:
    """[B, Hq, Lq], true where every sum that the LSE reads ranges over no key: it is -inf there. A mask put on after the
    softmax leaves the sums as they are."""
    read = frozenset[str]() if spec.lse is None else free_names(spec.lse)
    over = [r.over for r in spec.rows if r.name in read] or [spec.mask]
    return torch.stack([empty_rows(replace(spec, mask=o), sizes, captures) for o in dict.fromkeys(over)]).all(0)


def _reads(expr: Expr, name: str) -> bool:
    return any(isinstance(x, Name) and x.id == name for x in descendants(expr))


def _over_axes(expr: Expr, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> object:
    """The expression at s = 0 over all b, h, i, j. Subscripts in branches that a `where` drops may be out of range."""
    extents = (("b", "B"), ("h", "Hq"), ("i", "Lq"), ("j", "Lk"))
    axes = {
        name: torch.arange(sizes[size]).view([-1 if n == axis else 1 for n in range(4)])
        for axis, (name, size) in enumerate(extents)
    }
    scope: dict[str, Tensor | int | float] = {**sizes, **captures, **axes, "s": torch.zeros((), dtype=torch.float64)}

    def lookup(node: Expr) -> Tensor | int | float:
        assert isinstance(node, Name)
        return scope[node.id]

    return evaluate(_clamped(expr, captures), lookup)


def _clamped(expr: Expr, captures: Mapping[str, Tensor]) -> Expr:
    """With every subscript of a capture brought into its range."""
    expr = map_children(expr, lambda node: _clamped(node, captures) if isinstance(node, Expr) else node)
    if not (isinstance(expr, Index) and isinstance(expr.base, Name)):
        return expr
    inside = tuple(
        Call("minimum", (Call("maximum", (x, IntLit(0))), IntLit(int(n) - 1)))
        for x, n in zip(expr.indices, captures[expr.base.id].shape, strict=True)
    )
    return Index(expr.base, inside, span=expr.span)
