"""How far the gradients of a backward kernel may be from the fp64 oracle: derived as the bound of the forward pass, from the
formats.

    |dV - dV64| <= 2 u (sum w |A| + |dV|) + sum (dw |A| + w dA)             over the rows and heads that read the key
    |dQ - dQ64| <= 2 u scale (sum |ds| |K| + |dQ|) + scale sum d(ds) |K|    over keys; dK likewise over rows and heads, with |Q|

P and dS are rounded to the half type (u) as operands of gemms, and 0 where they are below the smallest normal number of fp32; sums
are fp32. dw and d(ds) are what moves when one source of error does, summed over the sources: the score, from fp32; the saved LSE
and row sums; the coefficients, for the output that they are made of has the error of the forward pass; dp, from fp32 and the
rounding of A; the weight; a slope that is kept, in the half type.
Each is evaluated at both ends of its error, so that a bound of a ReLU between them counts whole.

Where the terms of a sum cancel, the bound is as large as the gradient: `cancelled` says how much of it is lost so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cubridge.engine.dense import spec_values
from cubridge.engine.dense_gradient import (
    Gradients,
    PairValues,
    RowValues,
    by_key_head,
    pair_values,
    row_terms,
    row_values,
    sums,
    with_rows,
)
from cubridge.engine.elements import at_elements
from cubridge.ir.nodes import Name
from cubridge.judge.bound import (
    FP32_ROUNDOFF,
    FP32_STEPS,
    SUBNORMAL_ROUNDOFF,
    UNIT_ROUNDOFF,
    lse_bound,
    output_bound,
    score_error,
)

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.engine.dense_gradient import RowTerms, Saved
    from cubridge.ir.functions import FunctionInfo
    from cubridge.ir.spec import RowReduction

_FP32 = FP32_STEPS * FP32_ROUNDOFF
_FLUSHED = 2.0**-126
"""Weights below it are 0 on a GPU, and so are gradients of scores: keys far behind the maximum of every row have gradients of that
size."""


def gradient_bound(
    saved: Saved, dout: Tensor, dlse: Tensor | None, dtype: str, approximated: Mapping[str, FunctionInfo]
) -> Gradients:
    """The bound of every element of dq, dk and dv, in their shapes."""
    u = UNIT_ROUNDOFF[dtype]
    terms = row_terms(saved, saved.scope, dout, dlse)
    rows = row_values(terms)
    off = _forward_errors(saved, dtype, approximated)
    off_rows = _row_errors(saved, terms, off, dout, dlse, u)
    pairs = pair_values(saved, with_rows(saved, rows))
    moved = _moved_pairs(saved, rows, pairs, off, off_rows, u)
    return _bound(saved, rows, pairs, off_rows, moved, dtype)


def cancelled(expected: Tensor, bound: Tensor) -> float:
    """The share of elements that the bound may take for 0: rounding alone may be as large."""
    return float((expected.abs() <= bound).double().mean()) if expected.numel() else 0.0


# ---- what the forward pass saves -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Off:
    """Errors of the saved values by name; of x and s [B, Hq, Lq, Lk]."""

    saved: dict[str, Tensor]
    score: Tensor
    raw: Tensor


def _forward_errors(saved: Saved, dtype: str, approximated: Mapping[str, FunctionInfo]) -> _Off:
    spec, words = saved.gradient.forward, saved.gradient.words
    by_head = replace(spec, kv_head=Name("h"))  # keys and values are those of each head
    values = spec_values(by_head, saved.q, saved.keys, saved.values, saved.captures, approximated)
    score = score_error(values, saved.q, saved.keys)
    raw = FP32_ROUNDOFF * saved.q.shape[-1] * (saved.q.abs() @ saved.keys.abs().mT)
    off = {
        words.out: output_bound(values, values.out, saved.values, score, dtype),
        words.lse: lse_bound(values, score)[..., None],
    }
    if "acc" in saved.gradient.saved:
        identity = replace(by_head, finalize=Name("acc"))
        sums = spec_values(identity, saved.q, saved.keys, saved.values, saved.captures, approximated)
        off["acc"] = output_bound(sums, sums.out, saved.values, score, dtype)
    off |= {r.name: row_sum_error(saved, r, score) for r in spec.rows}
    kept = {name: error for name, error in off.items() if name in saved.gradient.saved}
    return _Off(kept, score, raw)


def row_sum_error(saved: Saved, row: RowReduction, score: Tensor) -> Tensor:
    """Of a sum in fp32, whose terms move with the score, each in its own direction."""
    import torch

    full, scope = saved.visible.shape, saved.scope

    def terms(x: Tensor) -> Tensor:
        over = at_elements(row.over, scope, torch.bool)
        return torch.where(over, at_elements(row.body, {**scope, "x": x}, torch.float64), 0.0).expand(full)

    x = torch.as_tensor(scope["x"])
    at = terms(x)
    moved = _largest([terms(x + e) - at for e in (score, -score)])
    return (moved + 64 * FP32_ROUNDOFF * at.abs()).sum(-1, keepdim=True)


def _largest(changes: list[Tensor]) -> Tensor:
    """Of hidden pairs and empty rows, which may have no numbers, 0."""
    import torch

    return torch.stack(changes).nan_to_num(0.0, 0.0, 0.0).abs().amax(0)


# ---- what the kernels compute ----------------------------------------------------------------------------------------


def _row_errors(saved: Saved, terms: RowTerms, off: _Off, dout: Tensor, dlse: Tensor | None, u: float) -> RowValues:
    """What A and the coefficients are off by."""
    rounded = 0.0 if saved.gradient.acc_grad == Name(saved.gradient.words.dout) else u
    acc_grad = rounded * terms.acc_grad.abs()
    width = FP32_ROUNDOFF * dout.shape[-1]
    coefficients = {
        n: width * e.abs().sum(-1, keepdim=True) + FP32_ROUNDOFF * terms.alone[n].abs() for n, e in terms.each.items()
    }
    for name, error in off.saved.items():
        ends = [row_terms(saved, {**saved.scope, name: saved.scope[name] + e}, dout, dlse) for e in (error, -error)]
        acc_grad = acc_grad + _largest([end.acc_grad - terms.acc_grad for end in ends])
        for c in coefficients:
            each = _largest([end.each[c] - terms.each[c] for end in ends]).sum(-1, keepdim=True)
            coefficients[c] = coefficients[c] + each + _largest([end.alone[c] - terms.alone[c] for end in ends])
    return RowValues(acc_grad, coefficients)


def _moved_pairs(
    saved: Saved, rows: RowValues, pairs: PairValues, off: _Off, off_rows: RowValues, u: float
) -> PairValues:
    """What weights and gradients of scores are off by, over all sources of error."""
    scope, words = with_rows(saved, rows), saved.gradient.words
    size = saved.values.abs().mT
    dp = FP32_ROUNDOFF * saved.q.shape[-1] * (rows.acc_grad.abs() @ size) + off_rows.acc_grad @ size
    sources: list[dict[str, Tensor]] = [{"x": off.score, "s": off.raw}, {words.dp: dp}]
    sources += [{name: error} for name, error in off_rows.coefficients.items()]
    sources += [{name: error} for name, error in off.saved.items() if name not in (words.out, "acc")]
    slope = u if saved.gradient.slope_from == "kept" else 0.0
    moved = [[pair_values(saved, scope, sign * _FP32, sign * slope) for sign in (1, -1)]]
    moved.append([pair_values(saved, scope, smallest=_FLUSHED)])
    for source in sources:
        ends = [{**scope, **{n: scope[n] + sign * e for n, e in source.items()}} for sign in (1, -1)]
        moved.append([pair_values(saved, end) for end in ends])
    weight, score_grad = pairs.weight * 0.0, pairs.score_grad * 0.0
    for ends in moved:
        weight = weight + _largest([end.weight - pairs.weight for end in ends])
        score_grad = score_grad + _largest([end.score_grad - pairs.score_grad for end in ends])
    return PairValues(weight, score_grad)


def _bound(
    saved: Saved, rows: RowValues, pairs: PairValues, off_rows: RowValues, moved: PairValues, dtype: str
) -> Gradients:
    """The sums of sizes in place of values: what is off, what rounding takes of each term, and of the result."""
    u, eta = UNIT_ROUNDOFF[dtype], max(SUBNORMAL_ROUNDOFF[dtype], _FLUSHED)
    sized = replace(saved, q=saved.q.abs(), keys=saved.keys.abs())
    acc_grad, read = rows.acc_grad.abs(), saved.read.double()
    terms = PairValues(
        2 * u * pairs.weight.abs() + moved.weight + eta * saved.visible.double(),
        2 * u * pairs.score_grad.abs() + moved.score_grad + eta * read,
    )
    of_terms = sums(sized, RowValues(acc_grad, {}), terms)
    of_acc_grad = by_key_head(saved, pairs.weight.abs().mT @ off_rows.acc_grad)
    result = sums(saved, rows, pairs)
    return Gradients(
        of_terms.dq.abs() + 2 * u * result.dq.abs() + eta,
        of_terms.dk.abs() + 2 * u * result.dk.abs() + eta,
        of_terms.dv.abs() + 2 * u * result.dv.abs() + of_acc_grad + eta,
    )
