"""The oracle of gradients: PyTorch's own of a spec in fp64, over the rows that see a key.

Nothing that is hidden is differentiated: its s and its x are replaced before any function is applied, so that no infinity there
comes back as NaN. At bounds a maximum follows the operation that it was read from (`AttentionSpec.tie`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from cubridge.engine.dense import element_scope, fill_rows, key_head_of_each
from cubridge.engine.dense_gradient import Gradients
from cubridge.engine.elements import at_elements
from cubridge.ir.nodes import Binary, Call, Expr, FloatLit, Node
from cubridge.ir.stable import stable_spec
from cubridge.ir.walk import free_names, rewrite

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.spec import AttentionSpec

_HIDDEN = 0.25
"""What stands for a hidden score: a number at which functions have derivatives."""
_LARGEST_EXPONENT = 700.0


def autograd_values(
    spec: AttentionSpec,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    captures: Mapping[str, Tensor | int | float | bool],
    dout: Tensor,
    dlse: Tensor | None = None,
) -> Gradients:
    """The gradients of sum(out * dout) + sum(lse * dlse). Shapes: as `dense_gradient.gradient_values`."""
    spec = stable_spec(spec)
    with torch.enable_grad():
        leaves = [t.detach().double().requires_grad_() for t in (q, k, v)]
        out, lse = _outputs(spec, leaves[0], leaves[1], leaves[2], captures)
        loss = (out * dout.double()).sum()
        if lse is not None and dlse is not None:
            loss = loss + (lse * dlse.double()).sum()
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return Gradients(*grads)


def _outputs(
    spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor, captures: Mapping[str, Tensor | int | float | bool]
) -> tuple[Tensor, Tensor | None]:
    """(out, lse), 0 in rows that see no key and whose sums do not."""
    scope = element_scope(q, k, captures)
    heads = key_head_of_each(spec.kv_head, scope, k.shape[1])
    full = (*q.shape[:3], k.shape[2])
    raw = q @ k[:, heads].mT
    overs = torch.stack(
        [at_elements(o, scope, torch.bool).expand(full) for o in (spec.mask, *(r.over for r in spec.rows))]
    )
    with torch.no_grad():
        finite = at_elements(spec.score, {**scope, "s": raw}, torch.float64).expand(full) != -torch.inf
    read = overs.any(0) & finite
    scope["s"] = torch.where(read, raw, _HIDDEN)
    score = at_elements(_differentiable(spec.score, spec.tie), scope, torch.float64).expand(full)
    scope["x"] = torch.where(read, score, _HIDDEN)
    with torch.no_grad():
        shown = {**scope, "x": torch.where(read, score, -torch.inf)}
        visible = fill_rows(spec, shown, full)
        scope["m"] = shown["m"]
    for row in spec.rows:
        over = at_elements(row.over, scope, torch.bool).expand(full) & finite
        body = at_elements(_differentiable(row.body, spec.tie), scope, torch.float64).expand(full)
        scope[row.name] = _reduced(row.kind, over, body)
    weight = at_elements(_differentiable(spec.weight, spec.tie), scope, torch.float64)
    scope["acc"] = torch.where(visible, weight, 0.0) @ v[:, heads]
    seen = visible.any(-1, keepdim=True)
    out = torch.where(seen, at_elements(_safe(spec.finalize), scope, torch.float64), 0.0)
    if spec.lse is None:
        return out, None
    summed = (overs[1:] & finite).any(0).any(-1, keepdim=True) if spec.rows else seen
    lse = at_elements(_safe(spec.lse), scope, torch.float64)
    return out, torch.where(summed, lse, 0.0).squeeze(-1)


def _reduced(kind: str, over: Tensor, body: Tensor) -> Tensor:
    """Of a row without keys, 1: nothing reads it, and a logarithm of it has a derivative."""
    any_key = over.any(-1, keepdim=True)
    match kind:
        case "sum":
            total = torch.where(over, body, 0.0).sum(-1, keepdim=True)
        case "max":
            total = torch.where(over, body, -torch.inf).amax(-1, keepdim=True)
        case _:
            total = torch.where(over, body, torch.inf).amin(-1, keepdim=True)
    return torch.where(any_key, total, 1.0)


def _differentiable(expr: Expr, tie: float | None) -> Expr:
    """With the gradient of each maximum and minimum at its bound."""

    def change(node: Node) -> Node:
        match node:
            case Call("maximum" | "minimum" as fn, (a, b)) if tie in (0.0, 1.0):
                bound, value = (a, b) if _varies(b) else (b, a)
                if _varies(bound) or not _varies(value):
                    return node
                op = ">" if fn == "maximum" else "<"
                return Call("where", (Binary(op if tie == 0 else f"{op}=", value, bound), value, bound))
            case _:
                return node

    return rewrite(_safe(expr), change)


def _varies(expr: Expr) -> bool:
    return bool(free_names(expr) & {"s", "x"})


def _safe(expr: Expr) -> Expr:
    """With exponents that fp64 holds: where exp is infinite, autograd has inf / inf for the derivative of 1 / exp."""

    def change(node: Node) -> Node:
        if isinstance(node, Call) and node.fn == "exp":
            return Call("exp", (Call("minimum", (node.args[0], FloatLit(_LARGEST_EXPONENT))),))
        return node

    return rewrite(expr, change)
