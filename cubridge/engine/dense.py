"""An AttentionSpec evaluated in fp64 over whole tensors: what its kernel should give, and how sensitive that is.

Nothing is tiled here and nothing is fast; this is the meaning of a spec, in the order of its definition in `spec`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from cubridge.engine.elements import at_elements, axis_grids
from cubridge.ir.nodes import Call, Expr, Name
from cubridge.ir.spec import Shape
from cubridge.ir.stable import stable_spec
from cubridge.ir.walk import free_names, rewrite, walk

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.functions import FunctionInfo
    from cubridge.ir.spec import AttentionSpec, RowReduction

    Scope = dict[str, Tensor | int | float | bool]


@dataclass(frozen=True, slots=True)
class SpecValues:
    """Shapes:  out [B, Hq, Lq, D]; lse [B, Hq, Lq] or None; visible, score, weights, sensitivity [B, Hq, Lq, Lk]; fp64.

    `weights`: |d out / d V|, and out = weights @ V where finalize is linear, as it nearly always is.
    `sensitivity`: |d weight / d score| in the same unit. `slope` [B, Hq, Lq, Lk]: |d score / d s|. `approximation` [B, Hq, Lq, Lk]:
    what the approximated functions of the score may change it by. `exponentials` [B, Hq, Lq, Lk]: the sizes of the exponentials
    that a weight is a difference of, in the unit of `weights`; 0 where it is one exponential alone. `out_exponentials`
    [B, Hq, Lq, D] and `lse_exponentials` [B, Hq, Lq]: those of row sums, in the unit of output and LSE.
    `gain` [B, Hq, Lq, 1]: |d out / d (sum of weight V)|. `empty` [B, Hq, Lq]: rows that see no key; out is 0 there.
    `lse_keys` [B, Hq, Lq, Lk]: keys that the sums of lse range over; where these have none, lse is what its formula gives of
    sums that are 0, and -inf where that is no number."""

    out: Tensor
    lse: Tensor | None
    visible: Tensor
    score: Tensor
    weights: Tensor
    sensitivity: Tensor
    slope: Tensor
    approximation: Tensor
    exponentials: Tensor
    out_exponentials: Tensor
    lse_exponentials: Tensor
    gain: Tensor
    empty: Tensor
    lse_keys: Tensor


def spec_values(
    spec: AttentionSpec,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    captures: Mapping[str, Tensor | int | float | bool],
    approximated: Mapping[str, FunctionInfo] = MappingProxyType({}),
    derivatives: bool = True,
) -> SpecValues:
    """Evaluate `spec`. `approximated`: functions that the kernel computes by the device function given for each.
    Without `derivatives`, `sensitivity`, `slope`, `approximation` and `exponentials` are 0 and `weights` are those before finalize.

    Shapes: q [B, Hq, Lq, D]; k, v [B, Hk, Lk, D], any float dtype. Errors: CU301 for a name without value."""
    scope = element_scope(q, k, captures)
    heads = key_head_of_each(spec.kv_head, scope, k.shape[1])
    keys, values = k.double()[:, heads], v.double()[:, heads]
    full = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    scope["s"] = q.double() @ keys.mT
    return _values(spec, scope, values, full, approximated, derivatives)


def spec_values_at(
    spec: AttentionSpec, scope: Mapping[str, object], values: Tensor, derivatives: bool = False
) -> SpecValues:
    """Evaluate `spec` at some points as if there were no others. `scope` gives sizes, captures (tensors, or
    what has their shape and indexing), and integers b, h [P, 1, 1, 1], i [P, 1, R, 1], j [P, 1, 1, C], with the raw scores s
    [P, 1, R, C] between them. In the result P, 1, R, C stand for B, Hq, Lq, Lk.

    Shapes: values [C, E], fp64. Errors: CU301 for a name without value, or arithmetic that has none."""
    names: Scope = dict(scope)  # pyright: ignore[reportAssignmentType]
    points, _, rows, columns = names["s"].shape  # pyright: ignore
    return _values(spec, names, values, (points, 1, rows, columns), {}, derivatives)


def visible_at(spec: AttentionSpec, scope: Mapping[str, object]) -> Tensor:
    """The mask of `spec` at the points of `scope`, as in `spec_values_at`, whatever the scores. Errors: CU301."""
    return at_elements(spec.mask, dict(scope), torch.bool)  # pyright: ignore[reportArgumentType]


def _values(
    spec: AttentionSpec,
    scope: Scope,
    values: Tensor,
    full: tuple[int, int, int, int],
    approximated: Mapping[str, FunctionInfo],
    derivatives: bool,
) -> SpecValues:
    spec = stable_spec(spec)
    score, score_slope = _derivative(spec.score, "s", scope, full, derivatives)
    approximation = _approximation(spec.score, approximated, scope, full)
    scope["x"] = score
    visible = fill_rows(spec, scope, full)
    empty = ~visible.any(-1, keepdim=True)
    weight, weight_slope = _derivative(spec.weight, "x", scope, full, derivatives)
    exponentials = _exponentials(spec.weight, scope, full) if derivatives else torch.zeros_like(weight)
    weight = torch.where(visible, weight, 0.0)
    acc = weight @ values
    out, gain = _derivative(spec.finalize, "acc", {**scope, "acc": acc}, tuple(acc.shape), derivatives)
    gain = gain.amax(-1, keepdim=True) if derivatives else torch.ones_like(gain[..., :1])
    out = torch.where(empty, 0.0, out)
    gain = torch.where(empty, 0.0, gain)
    lse, read = None, _read_by_lse(spec, scope, visible)
    if spec.lse is not None:
        lse = at_elements(spec.lse, scope, torch.float64).expand(*full[:3], 1)
        sums_nothing = ~torch.stack([keys.any(-1, keepdim=True) for keys in read]).any(0)
        lse = torch.where(sums_nothing & lse.isnan(), -torch.inf, lse).squeeze(-1)
    sensitivity = torch.where(visible, weight_slope, 0.0) * gain
    return SpecValues(
        out=out,
        lse=lse,
        visible=visible,
        score=score,
        weights=weight.abs() * gain,
        sensitivity=sensitivity,
        slope=score_slope,
        approximation=approximation,
        exponentials=torch.where(visible, exponentials, 0.0) * gain,
        out_exponentials=_of_sums(spec.finalize, spec, {**scope, "acc": acc}, full, acc.shape[-1], derivatives),
        lse_exponentials=_of_sums(spec.lse, spec, scope, full, 1, derivatives).squeeze(-1),
        gain=gain,
        empty=empty.squeeze(-1),
        lse_keys=torch.stack(read).any(0),
    )


def fill_rows(spec: AttentionSpec, scope: Scope, full: tuple[int, ...]) -> Tensor:
    """Put m and the row reductions into `scope`, which has x; returns which keys [B, Hq, Lq, Lk] the rows see."""
    seen = at_elements(spec.mask, scope, torch.bool).expand(full)
    visible = seen & (scope["x"] != -torch.inf)  # a captured bias may hold -inf
    scope["m"] = _row_shift(spec, scope, visible)
    for row in spec.rows:
        scope[row.name] = reduced(row, scope, full)
    return visible


def element_scope(q: Tensor, k: Tensor, captures: Mapping[str, Tensor | int | float | bool]) -> Scope:
    """Sizes, indices and captures, by their names."""
    sizes = Shape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3]).sizes()
    wide = {n: c.double() if isinstance(c, torch.Tensor) and c.is_floating_point() else c for n, c in captures.items()}
    return {**sizes, **axis_grids(sizes), **wide}


def key_head_of_each(kv_head: Expr, scope: Scope, heads: int) -> Tensor:
    """The key head, of `heads`, of each query head. [Hq]"""
    index = at_elements(kv_head, scope, torch.int64)
    return index.expand(1, scope["h"].shape[1], 1, 1).reshape(-1).clamp(0, heads - 1)  # pyright: ignore


def _row_shift(spec: AttentionSpec, scope: Scope, visible: Tensor) -> Tensor:
    """Where the spec lets the shift be chosen, the largest score that a row reads, or what an exponential without a score is
    relative to if that is larger; 0 elsewhere."""
    if not spec.shift:
        return torch.zeros_like(visible[..., :1], dtype=torch.float64)
    read = visible
    for over in (r.over for r in spec.rows if r.over != spec.mask):
        read = read | at_elements(over, scope, torch.bool)
    top = _or_nothing(torch.where(read, scope["x"], -torch.inf), -torch.inf).amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    used = [spec.finalize, spec.weight, *(r.body for r in spec.rows), *([] if spec.lse is None else [spec.lse])]
    varying = {"x", *(r.name for r in spec.rows)}
    for node in (node for expr in used for node in walk(expr)):
        if isinstance(node, Call) and node.fn == "exp" and "m" in (names := free_names(node)) and not names & varying:
            top = top + at_elements(node.args[0], {**scope, "m": top}, torch.float64).clamp_min(0.0)
    return top


def _read_by_lse(spec: AttentionSpec, scope: Scope, visible: Tensor) -> list[Tensor]:
    """The keys [B, Hq, Lq, Lk] of each reduction that the LSE reads."""
    read = frozenset[str]() if spec.lse is None else free_names(spec.lse)
    over = [r.over for r in spec.rows if r.name in read] or [spec.mask]
    seen = [visible if o == spec.mask else at_elements(o, scope, torch.bool) & (scope["x"] != -torch.inf) for o in over]
    return [keys.expand(visible.shape) for keys in seen]


_STEP = 1e-5
_REDUCE = {"sum": (torch.sum, 0.0), "max": (torch.amax, -torch.inf), "min": (torch.amin, torch.inf)}


def reduced(row: RowReduction, scope: Scope, full: tuple[int, ...]) -> Tensor:
    """[B, Hq, Lq, 1], at the m of `scope`."""
    reduce, neutral = _REDUCE[row.kind]
    over = at_elements(row.over, scope, torch.bool).expand(full)
    body = at_elements(row.body, scope, torch.float64).expand(full)
    return reduce(_or_nothing(torch.where(over, body, neutral), neutral), dim=-1, keepdim=True)


def _or_nothing(values: Tensor, neutral: float) -> Tensor:
    """Where there are no keys, one that changes nothing."""
    return values if values.shape[-1] else values.new_full((*values.shape[:-1], 1), neutral)


def _derivative(
    expr: Expr, name: str, scope: Scope, full: tuple[int, ...], wanted: bool = True
) -> tuple[Tensor, Tensor]:
    """`expr` for every element, and the magnitude of its derivative by the elementwise value `name`, 0 if not wanted. Where
    autograd has no number (1 / (1 + exp(-x)) past the range of exp is inf / inf), a difference quotient."""
    if not wanted:
        return at_elements(expr, scope, torch.float64).expand(full), torch.zeros(full, dtype=torch.float64)
    with torch.enable_grad():
        leaf = scope[name].detach().clone().requires_grad_()  # pyright: ignore
        value = at_elements(expr, {**scope, name: leaf}, torch.float64).expand(full)
        if not value.requires_grad:
            return value.detach(), torch.zeros(full, dtype=torch.float64)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    if bool((slope.isnan() & value.isfinite()).any()):
        slope = torch.where(slope.isnan(), _difference_quotient(expr, name, scope), slope)
    return value.detach(), slope.abs()


def _difference_quotient(expr: Expr, name: str, scope: Scope) -> Tensor:
    at = scope[name].detach()  # pyright: ignore
    step = _STEP * (1.0 + at.abs())
    after, before = (at_elements(expr, {**scope, name: at + d}, torch.float64) for d in (step, -step))
    return (after - before) / (2.0 * step)


def _approximation(expr: Expr, approximated: Mapping[str, FunctionInfo], scope: Scope, full: tuple[int, ...]) -> Tensor:
    """The error of `expr` to first order, from the declared errors of the functions that stand in for its calls."""
    total = torch.zeros(full, dtype=torch.float64)
    for call in walk(expr):
        info = approximated.get(call.fn) if isinstance(call, Call) else None
        if info is None or not isinstance(call, Call):
            continue
        value, slope = _by_call(expr, call, scope, full)
        total = total + slope * (info.abs_error + info.rel_error * value.abs())
    return total


def _exponentials(weight: Expr, scope: Scope, full: tuple[int, ...]) -> Tensor:
    """How much each exponential relative to m moves the weight, together, where there are several."""
    calls = {x for x in walk(weight) if isinstance(x, Call) and x.fn == "exp" and "m" in free_names(x)}
    total = torch.zeros(full, dtype=torch.float64)
    for call in calls if len(calls) > 1 else ():
        value, slope = _by_call(weight, call, scope, full)
        total = total + slope * value
    return total


def _of_sums(
    expr: Expr | None, spec: AttentionSpec, scope: Scope, full: tuple[int, int, int, int], width: int, wanted: bool
) -> Tensor:
    """How much the exponentials of row sums move `expr`, together, where these are differences of several. [B, Hq, Lq, width]"""
    shape = (*full[:3], width)
    total = torch.zeros(shape, dtype=torch.float64)
    for row in spec.rows if wanted and expr is not None else ():
        if row.kind == "sum" and expr is not None and row.name in free_names(expr):
            over = at_elements(row.over, scope, torch.bool).expand(full) & (scope["x"] != -torch.inf)
            sizes = torch.where(over, _exponentials(row.body, scope, full), 0.0).sum(-1, keepdim=True)
            if bool(sizes.any()):
                each = {**scope, row.name: scope[row.name].expand(shape)}  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
                total = total + _derivative(expr, row.name, each, shape)[1] * sizes
    return total


def _by_call(expr: Expr, call: Call, scope: Scope, full: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The values of a call in `expr`, and the magnitude of the derivative of `expr` by it."""
    value = at_elements(call, scope, torch.float64).expand(full)
    outer = rewrite(expr, lambda node: Name("$call") if node == call else node)
    return value, _derivative(outer, "$call", {**scope, "$call": value}, full)[1]
