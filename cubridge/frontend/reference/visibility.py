"""Which rows of a problem see a key, by the mask of the spec and by scores that captures make -inf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from cubridge.engine.elements import at_elements, axis_grids
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import free_names


def empty_rows(spec: AttentionSpec, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> Tensor:
    """[B, Hq, Lq], true where no key is visible."""
    full = (sizes["B"], sizes["Hq"], sizes["Lq"], sizes["Lk"])
    scope = {**sizes, **captures, **axis_grids(sizes), "s": torch.zeros((), dtype=torch.float64)}
    visible = at_elements(spec.mask, scope, torch.bool).expand(full)
    read = free_names(spec.score)
    if any(c.dtype == "f32" and c.extents and c.name in read for c in spec.captures):
        visible = visible & (at_elements(spec.score, scope, torch.float64) > -torch.inf).expand(full)
    return ~visible.any(-1)


def rows_without_lse(spec: AttentionSpec, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> Tensor:
    """[B, Hq, Lq], true where every sum that the LSE reads ranges over no key: it is -inf there. A mask put on after the
    softmax leaves the sums as they are."""
    read = frozenset[str]() if spec.lse is None else free_names(spec.lse)
    over = [r.over for r in spec.rows if r.name in read] or [spec.mask]
    return torch.stack([empty_rows(replace(spec, mask=o), sizes, captures) for o in dict.fromkeys(over)]).all(0)
