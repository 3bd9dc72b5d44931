"""How far a kernel may be from the fp64 oracle: derived from the formats it computes in, element by element.

    |O - O64| <= 2 u (sum_j w_ij |V_j| + |O_i|)  +  sum_j ds_ij w'_ij (|V_j| + |O_i|)
                     + (eta + zeta) gain_i sum_j |V_j| + eta

with u the unit roundoff of the half type (weights and output are rounded to it; accumulation is fp32 and covered, and so is a
series of weights, `ir/series.py`, which loses at most u of each), eta the
half spacing of its subnormal numbers (below 6e-5, fp16 rounds by that much, however small the weight), w the
effective weights, w' their derivative by the score, and ds the error of a score: what fp32 loses in the dot product and the
exponent, plus what the approximations of the score code declare. Of a weight that is a difference of exponentials, ds w' has
besides what fp32 loses of each of these, and so has a row sum of such. zeta is what the oracle itself loses, in fp64, of a weight
that is a small difference (1 + erf(x) of a very negative x)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.engine.dense import SpecValues

UNIT_ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11}
SUBNORMAL_ROUNDOFF = {"bf16": 2.0**-134, "fp16": 2.0**-25}
FP32_ROUNDOFF = 2.0**-24
ORACLE_ROUNDOFF = 2.0**-44
FP32_STEPS = 8
"""Roundings in fp32 between a dot product and its exponent (scale, bias, reference, product), generously."""

VAGUE = 0.25
FILL = -1e6
"""A row whose largest score is at or below it sees fills alone: fp32 cannot tell its keys apart."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """`worst`: the largest error over its bound; accepted at most 1. `where`: (b, h, i, e) of it, `value` and `expected` there.
    `rows`: the largest of each query row i."""

    worst: float
    where: tuple[int, ...]
    value: float
    expected: float
    lse_error: float | None = None
    rows: tuple[float, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.worst <= 1.0 and (self.lse_error is None or self.lse_error <= 1.0)


def score_error(values: SpecValues, q: Tensor, k_by_head: Tensor) -> Tensor:
    """ds [B, Hq, Lq, Lk]: error of each score."""
    magnitude = q.double().abs() @ k_by_head.double().abs().mT
    dot = FP32_ROUNDOFF * q.shape[-1] * magnitude * values.slope
    return dot + FP32_STEPS * FP32_ROUNDOFF * values.score.abs().nan_to_num(0.0, posinf=0.0) + values.approximation


def output_bound(values: SpecValues, expected: Tensor, v_by_head: Tensor, ds: Tensor, dtype: str) -> Tensor:
    """The bound of every output element, [B, Hq, Lq, D]."""
    u, size = UNIT_ROUNDOFF[dtype], v_by_head.double().abs()
    rounding = 2 * u * (values.weights @ size + expected.abs())
    moved = moved_weights(values, ds)
    eta = SUBNORMAL_ROUNDOFF[dtype]
    tiny = (eta + ORACLE_ROUNDOFF) * values.gain * (values.visible.double() @ size) + eta
    moved_out = moved @ size + moved.sum(-1, keepdim=True) * expected.abs()
    return rounding + tiny + moved_out + FP32_STEPS * FP32_ROUNDOFF * values.out_exponentials


def moved_weights(values: SpecValues, ds: Tensor) -> Tensor:
    """The error of each weight by that of its score, and by what fp32 loses of the exponentials that it is a difference of."""
    return ds * values.sensitivity + FP32_STEPS * FP32_ROUNDOFF * values.exponentials


def lse_bound(values: SpecValues, ds: Tensor) -> Tensor:
    """The error of the score that may be furthest off among those summed, and of fp32 sums and logarithms. [B, Hq, Lq]"""
    import torch

    if ds.shape[-1] == 0:
        return ds.sum(-1)
    size = 1.0 if values.lse is None else 1.0 + values.lse.abs().nan_to_num(0.0, posinf=0.0, neginf=0.0)
    lost = FP32_STEPS * FP32_ROUNDOFF * values.lse_exponentials
    return torch.where(values.lse_keys, ds, 0.0).amax(-1) + 64 * FP32_ROUNDOFF * size + lost


def filled_rows(values: SpecValues) -> Tensor:
    """[B, Hq, Lq]: rows that see keys, all of them with a fill for a score. They are not compared, but for being numbers."""
    import torch

    if values.score.shape[-1] == 0:
        return values.empty & False
    return ~values.empty & (torch.where(values.visible, values.score, -torch.inf).amax(-1) <= FILL)


def vagueness(values: SpecValues, expected: Tensor, v_by_head: Tensor, ds: Tensor) -> float:
    """How much of the output the errors of scores may move, over all elements but those of `filled_rows`: small where scores
    are within the accurate range of fp32. From `VAGUE` on, the bound would accept nearly anything."""
    size, out = v_by_head.double().abs().sum(-1, keepdim=True), expected.abs().sum(-1, keepdim=True)
    compared = ~filled_rows(values)[..., None]
    changes = moved_weights(values, ds) * compared
    moved = (changes @ size).sum() + (out * changes.sum(-1, keepdim=True)).sum()
    return float(moved / (((values.weights @ size + out) * compared).sum().clamp_min(1e-300)))


def judge(got: Tensor, expected: Tensor, bound: Tensor) -> Judgement:
    """Compare `got` with the oracle. A NaN, or an infinity the oracle lacks, is infinitely wrong."""
    import torch

    error = (got.double() - expected).abs()
    same = got.double() == expected  # equal infinities, and exact zeros
    ratio = torch.where(same, 0.0, error / bound.clamp_min(torch.finfo(torch.float32).tiny))
    ratio = ratio.nan_to_num(nan=torch.inf, posinf=torch.inf)
    if ratio.numel() == 0:
        return Judgement(0.0, (), 0.0, 0.0)
    flat = int(ratio.argmax())
    where = tuple(int(x) for x in torch.unravel_index(torch.tensor(flat), ratio.shape))
    rows = tuple(ratio.transpose(0, 2).flatten(1).amax(1).tolist()) if ratio.dim() > 2 else ()
    return Judgement(float(ratio.flatten()[flat]), where, float(got[where]), float(expected[where]), rows=rows)
