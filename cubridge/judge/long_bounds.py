"""How far a kernel may be from a spec at a point: where both are in fp64, what two forms of one formula differ by; where the kernel
is in fp32, what its roundings may do to scores and to weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.judge.bound import FP32_ROUNDOFF, FP32_STEPS, lse_bound, moved_weights

if TYPE_CHECKING:
    from cubridge.engine.dense import SpecValues

_TOLERANCE: Final = 1e-5
"""Of a weight, relative to itself, and of the weights of all keys, relative to the largest of a row; both sides are fp64."""
_CONSTANTS: Final = 2.0**-22
"""Relative, of a score: kernels round constants such as log2(e) to fp32. A score may be an exponential of captured numbers, which
such a constant moves by as much as it has exponents."""
_NOTHING: Final = 1e-12
"""A weight that counts as 0: in fp64, forms of one formula differ by so much, such as `1 + erf(x)` and `erfc(-x)`."""
_OF_A_WEIGHT: Final = 64
"""Roundings of a weight after its exponent, besides one for each key tile."""
_OF_A_DOT_PRODUCT: Final = 4
_VAGUE: Final = 0.1
"""An error of a score from which on it may change the weights of its row by more than their slope says."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`out` [P, 1, R, E]; `lse` [P, 1, R], None where there is none."""

    out: Tensor
    lse: Tensor | None


def in_fp64(expected: SpecValues, values: Tensor, s: Tensor, keys: int) -> Bounds:
    """values [C, E]; s [P, 1, R, C]; `keys`: of a whole row."""
    size = values.abs().sum(0)
    everywhere = _TOLERANCE / keys * (expected.out.abs() / size).amax(-1, keepdim=True)
    ds = FP32_ROUNDOFF * _size_of_scores(expected, s)
    moved = ds * expected.sensitivity
    of_constants = moved @ values.abs() + moved.sum(-1, keepdim=True) * expected.out.abs()
    out = _TOLERANCE * expected.out.abs() + size * (everywhere + _NOTHING) + of_constants
    if expected.lse is None:
        return Bounds(out, None)
    of_scores = torch.where(expected.lse_keys, ds, 0.0).amax(-1)
    return Bounds(out, _TOLERANCE + _of_constants(expected.lse.abs()) + of_scores)


def _size_of_scores(expected: SpecValues, s: Tensor) -> Tensor:
    """Of scores, or of what q.k adds to them, which captured numbers may take away again. Constants of fp32 move that."""
    return torch.maximum(expected.score.abs().nan_to_num(0.0, posinf=0.0), expected.slope * s.abs())


def _of_constants(size: Tensor) -> Tensor:
    """What rounded constants may move a score of this size by."""
    return _CONSTANTS * size * (1.0 + size.log1p())


def in_fp32(expected: SpecValues, values: Tensor, s: Tensor, tiles: int) -> Bounds:
    """After so many key tiles; s [P, 1, R, C] are exact dot products, `expected` has derivatives. Rows that fp32 cannot tell
    are within any bound."""
    steps = FP32_STEPS * expected.score.abs().nan_to_num(0.0, posinf=0.0) + _OF_A_DOT_PRODUCT * expected.slope * s.abs()
    ds = FP32_ROUNDOFF * steps
    size, out = values.abs(), expected.out.abs()
    rounding = FP32_ROUNDOFF * (_OF_A_WEIGHT + tiles) * (expected.weights @ size + out)
    moved = 2.0 * moved_weights(expected, ds)
    of_sums = 2.0 * FP32_STEPS * FP32_ROUNDOFF * expected.out_exponentials
    allowed = rounding + moved @ size + moved.sum(-1, keepdim=True) * out + of_sums + _NOTHING * size.sum(0)
    vague = ((ds > _VAGUE) & expected.visible).any(-1, keepdim=True)
    allowed = allowed.masked_fill(vague, torch.inf)
    return Bounds(allowed, None if expected.lse is None else 2.0 * lse_bound(expected, ds) + FP32_ROUNDOFF * tiles)
