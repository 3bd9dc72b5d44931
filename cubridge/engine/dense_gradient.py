"""A GradientSpec evaluated in fp64 over whole tensors, from what a forward pass saves: what its backward kernels should give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cubridge.engine.dense import element_scope, fill_rows, key_head_of_each, reduced
from cubridge.engine.elements import at_elements
from cubridge.ir.nodes import Call
from cubridge.ir.stable import stable, stable_spec

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.gradient import GradientSpec
    from cubridge.ir.nodes import Expr

    Scope = dict[str, Tensor | int | float | bool]


@dataclass(frozen=True, slots=True)
class RowTerms:
    """Shapes: acc_grad and each [B, Hq, Lq, D], alone [B, Hq, Lq, 1]; the latter two of each coefficient by name."""

    acc_grad: Tensor
    each: dict[str, Tensor]
    alone: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class RowValues:
    """What the row kernel gives. Shapes: acc_grad [B, Hq, Lq, D]; coefficients [B, Hq, Lq, 1] by name."""

    acc_grad: Tensor
    coefficients: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class PairValues:
    """What the main kernel computes of each pair, [B, Hq, Lq, Lk]. `weight` and `score_grad` are 0 where they are hidden."""

    weight: Tensor
    score_grad: Tensor


@dataclass(frozen=True, slots=True)
class Gradients:
    """Shapes: dq [B, Hq, Lq, D]; dk, dv [B, Hk, Lk, D]; fp64."""

    dq: Tensor
    dk: Tensor
    dv: Tensor


@dataclass(frozen=True, slots=True)
class Saved:
    """After a forward pass. `scope`: what all expressions may read, the saved values among it; `visible` [B, Hq, Lq, Lk]: pairs
    that the rows see; `read`: or their reductions. keys and values [B, Hq, Lk, D] are those that each head reads."""

    gradient: GradientSpec
    captures: Mapping[str, Tensor | int | float | bool]
    scope: Scope
    visible: Tensor
    read: Tensor
    q: Tensor
    keys: Tensor
    values: Tensor
    key_heads: int


def gradient_values(
    gradient: GradientSpec,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    captures: Mapping[str, Tensor | int | float | bool],
    dout: Tensor,
    dlse: Tensor | None = None,
) -> Gradients:
    """Evaluate `gradient`. Shapes: q, dout [B, Hq, Lq, D]; k, v [B, Hk, Lk, D]; dlse [B, Hq, Lq], 0 if None."""
    saved = forward(gradient, q, k, v, captures)
    rows = row_values(row_terms(saved, saved.scope, dout, dlse))
    pairs = pair_values(saved, with_rows(saved, rows))
    return sums(saved, rows, pairs)


def forward(
    gradient: GradientSpec, q: Tensor, k: Tensor, v: Tensor, captures: Mapping[str, Tensor | int | float | bool]
) -> Saved:
    """What a forward pass saves, and the scores."""
    spec, words = stable_spec(gradient.forward), gradient.words
    scope = element_scope(q, k, captures)
    heads = key_head_of_each(spec.kv_head, scope, k.shape[1])
    keys, values = k.double()[:, heads], v.double()[:, heads]
    full = (*q.shape[:3], k.shape[2])
    scope["s"] = q.double() @ keys.mT
    scope["x"] = at_elements(spec.score, scope, torch.float64).expand(full)
    visible = fill_rows(spec, scope, full)
    weight = torch.where(visible, at_elements(spec.weight, scope, torch.float64), 0.0)
    scope["acc"] = weight @ values
    out = at_elements(spec.finalize, scope, torch.float64).expand(q.shape)
    scope[words.out] = torch.where(visible.any(-1, keepdim=True), out, 0.0)
    if gradient.total is not None:
        total = at_elements(stable(Call("log", (gradient.total,))), scope, torch.float64)
        scope[words.lse] = scope["m"] = scope["m"] + total
        for row in spec.rows:
            scope[row.name] = reduced(row, scope, full)
        _reach_acc(gradient, scope, visible, values)
    known = scope["x"] != -torch.inf
    read = visible.clone()
    for part in gradient.parts:
        read |= at_elements(part.over, scope, torch.bool) & known
    return Saved(gradient, captures, scope, visible, read, q.double(), keys, values, k.shape[1])


def _reach_acc(gradient: GradientSpec, scope: Scope, visible: Tensor, values: Tensor) -> None:
    """The sum at the m that is saved."""
    if "acc" in gradient.saved:
        weight = at_elements(stable(gradient.forward.weight), scope, torch.float64)
        scope["acc"] = torch.where(visible, weight, 0.0) @ values


def row_terms(saved: Saved, scope: Scope, dout: Tensor, dlse: Tensor | None) -> RowTerms:
    """The row kernel, of the saved values of `scope`, before its sums. A row that sees no key gives nothing but what its LSE
    does."""
    words = saved.gradient.words
    empty = ~saved.visible.any(-1, keepdim=True)
    of_lse = torch.zeros(*dout.shape[:3], 1, dtype=torch.float64) if dlse is None else dlse.double()[..., None]
    scope = {**scope, words.dout: dout.double(), words.dlse: of_lse}

    def of_columns(expr: Expr) -> Tensor:
        return torch.where(empty, 0.0, _at(expr, scope).expand(dout.shape))

    return RowTerms(
        of_columns(saved.gradient.acc_grad),
        {c.name: of_columns(c.each) for c in saved.gradient.coefficients},
        {c.name: _at(c.alone, scope).expand(of_lse.shape) for c in saved.gradient.coefficients},
    )


def row_values(terms: RowTerms) -> RowValues:
    """What the row kernel gives."""
    coefficients = {name: each.sum(-1, keepdim=True) + terms.alone[name] for name, each in terms.each.items()}
    return RowValues(terms.acc_grad, coefficients)


def with_rows(saved: Saved, rows: RowValues) -> Scope:
    """The scope of the main kernel."""
    return {**saved.scope, **rows.coefficients, saved.gradient.words.dp: rows.acc_grad @ saved.values.mT}


def pair_values(
    saved: Saved, scope: Scope, weight_error: float = 0.0, slope_error: float = 0.0, smallest: float = 0.0
) -> PairValues:
    """The main kernel, of the s, x, dp and row values of `scope`. `weight_error`, `slope_error`: what the weight and a slope that
    is kept are off by, relatively; `smallest`: weights below it are 0."""
    gradient, words = saved.gradient, saved.gradient.words
    full, known = saved.visible.shape, scope["x"] != -torch.inf
    weight = _at(gradient.weight, scope) * (1.0 + weight_error)
    weight = torch.where(weight.abs() < smallest, 0.0, weight)
    scope = {**scope, words.weight: weight, words.slope: _at(gradient.slope, scope) * (1.0 + slope_error)}
    dx = torch.zeros(full, dtype=torch.float64)
    for part in gradient.parts:
        over = at_elements(part.over, scope, torch.bool) & known
        dx = dx + torch.where(over, _at(part.value, scope), 0.0)
    score_grad = _at(gradient.score_grad, {**scope, words.dx: dx}).expand(full)
    seen = at_elements(gradient.mask, scope, torch.bool) & known
    return PairValues(torch.where(seen, weight, 0.0), torch.where(saved.read, score_grad, 0.0))


def sums(saved: Saved, rows: RowValues, pairs: PairValues) -> Gradients:
    """The sums over keys, and over rows and the heads of a group."""
    gradient = saved.gradient
    return Gradients(
        dq=_at(gradient.dq_scale, saved.scope) * (pairs.score_grad @ saved.keys),
        dk=_at(gradient.dk_scale, saved.scope) * by_key_head(saved, pairs.score_grad.mT @ saved.q),
        dv=by_key_head(saved, pairs.weight.mT @ rows.acc_grad),
    )


def by_key_head(saved: Saved, of_heads: Tensor) -> Tensor:
    """Sums over the query heads of one key head: [B, Hq, ..] to [B, Hk, ..]."""
    total = of_heads.new_zeros(of_heads.shape[0], saved.key_heads, *of_heads.shape[2:])
    heads = key_head_of_each(saved.gradient.key_head, saved.scope, saved.key_heads)
    return total.index_add(1, heads, of_heads)


def _at(expr: Expr, scope: Scope) -> Tensor:
    return at_elements(expr, scope, torch.float64)
