"""Which rows of a problem see a key, by the mask of the spec and by scores that captures make -inf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from cubridge.engine.elements import at_elements, axis_grids
from cubridge.frontend.reference.algebra.selection import MASK_FILL
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import free_names


def empty_rows(spec: AttentionSpec, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> Tensor:
    """[B, Hq, Lq], true where no key is visible."""
    scores = _scores_of_visible_keys(spec, sizes, captures, captured=bool(_biases(spec)))
    return ~(scores > -torch.inf).any(-1)


def filled_rows(spec: AttentionSpec, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> Tensor:
    """[B, Hq, Lq], true where keys are visible, and captures make a large finite fill of the score of each."""
    scores = _scores_of_visible_keys(spec, sizes, captures, captured=bool(captured_fills(spec, captures)))
    return (scores > -torch.inf).any(-1) & (scores <= MASK_FILL).all(-1)


def captured_fills(spec: AttentionSpec, captures: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Captures of the score that hold a large finite fill, as additive masks do."""
    return tuple(n for n in _biases(spec) if bool(((captures[n] <= MASK_FILL) & captures[n].isfinite()).any()))


def _biases(spec: AttentionSpec) -> list[str]:
    read = free_names(spec.score)
    return [c.name for c in spec.captures if c.dtype == "f32" and c.extents and c.name in read]


def _scores_of_visible_keys(
    spec: AttentionSpec, sizes: Mapping[str, int], captures: Mapping[str, Tensor], captured: bool
) -> Tensor:
    """[B, Hq, Lq, Lk]: -inf where a key is hidden, else the score that `captured` values make of s = 0, or 0 without them."""
    full = (sizes["B"], sizes["Hq"], sizes["Lq"], sizes["Lk"])
    scope = {**sizes, **captures, **axis_grids(sizes), "s": torch.zeros((), dtype=torch.float64)}
    visible = at_elements(spec.mask, scope, torch.bool).expand(full)
    score = at_elements(spec.score, scope, torch.float64) if captured else scope["s"]
    return torch.where(visible, score, -torch.inf)


def rows_without_lse(spec: AttentionSpec, sizes: Mapping[str, int], captures: Mapping[str, Tensor]) -> Tensor:
    """[B, Hq, Lq], true where every sum that the LSE reads ranges over no key: it is -inf there. A mask put on after the
    softmax leaves the sums as they are."""
    read = frozenset[str]() if spec.lse is None else free_names(spec.lse)
    over = [r.over for r in spec.rows if r.name in read] or [spec.mask]
    return torch.stack([empty_rows(replace(spec, mask=o), sizes, captures) for o in dict.fromkeys(over)]).all(0)
