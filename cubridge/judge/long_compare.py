"""A kernel against a spec at chosen keys of a long problem: weights, key by key, or the output of rows of very many keys; and the
LSE."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.engine.dense import spec_values_at
from cubridge.engine.elements import fp64
from cubridge.judge import long_bounds as bounds
from cubridge.judge.long_faults import diagnostic, parts_of_weight, sizes
from cubridge.judge.long_keys import of_the_reference, scope_of
from cubridge.judge.long_points import COLUMNS

if TYPE_CHECKING:
    from cubridge.engine.dense import SpecValues
    from cubridge.engine.values.points import KernelPoints, Keys
    from cubridge.ir.diagnostics import Diagnostic
    from cubridge.ir.nodes import Node
    from cubridge.ir.spec import AttentionSpec
    from cubridge.judge.long_bounds import Bounds
    from cubridge.judge.long_captures import Captures
    from cubridge.judge.long_keys import Batch
    from cubridge.judge.long_points import Places


_LARGEST_WEIGHT: Final = 2.0**64
"""Of a weight relative to its row's reference. Sums of 2^21 of them times values of 2^40 are fp32 numbers."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a spec gives at a batch: keys j [P, 1, 1, C], raw scores s [P, 1, R, C], values v [C, E]."""

    batch: Batch
    i: Tensor
    j: Tensor
    s: Tensor
    v: Tensor
    values: SpecValues

    def allowed(self, is_exact: bool, keys: int) -> Bounds:
        """What a kernel in fp64 may differ by, or one in fp32. `keys`: of a whole row."""
        if is_exact:
            return bounds.in_fp64(self.values, self.v, self.s, keys)
        return bounds.in_fp32(self.values, self.v, self.s, len(self.batch.groups))


def expect(spec: AttentionSpec, captures: Captures, places: Places, points: KernelPoints, batch: Batch) -> Expected:
    """The spec at the keys of a batch, as if there were no others."""
    i = places.i[batch.which]
    j, s = (torch.cat([getattr(k, name) for k in batch.groups], -1).squeeze(1) for name in ("j", "s"))
    v, s = torch.cat([k.v for k in batch.groups]), s.double()
    scope = scope_of(places, captures, points, batch.which, j, i) | {"s": s}
    with fp64(), of_the_reference():
        return Expected(batch, i, j, s, v, spec_values_at(spec, scope, v, derivatives=True))


@dataclass(slots=True)
class LongComparison:
    """Kernel and spec at the places of one size, the kernel in the dtype of `points`. `compared`: numbers looked at until now."""

    points: KernelPoints
    spec: AttentionSpec
    places: Places
    tile: SimpleNamespace
    compared: int = field(default=0, init=False)

    def fault(self, expected: Expected) -> Diagnostic | None:
        """The first number that differs."""
        batch, right = expected.batch, expected.values
        allowed = expected.allowed(self.points.dtype == torch.float64, self.points.shape.Lk)
        tile = SimpleNamespace(**{name: value[batch.which] for name, value in vars(self.tile).items()})
        found = self.points.attend(tile, expected.i, batch.groups)
        self.compared += found.out.numel()
        fault = self._of_output(batch, found.out, right.out.squeeze(1), allowed.out.squeeze(1), expected.v)
        fault = fault or self._of_peak(batch, found.peak)
        if fault is not None or right.lse is None or allowed.lse is None:
            return fault
        return self._of_lse(batch, expected.j, found.lse, right.lse.squeeze(1), allowed.lse.squeeze(1))

    def _of_output(
        self, batch: Batch, out: Tensor, wanted: Tensor, allowed: Tensor, values: Tensor
    ) -> Diagnostic | None:
        wrong = ~((out - wanted).abs() <= allowed) & wanted.isfinite() & (out != wanted)
        if not bool(wrong.any()):
            return None
        hidden = wrong & ((out == 0) != (wanted == 0))
        p, r, c = (hidden if bool(hidden.any()) else wrong).nonzero()[0].tolist()
        got, right = (float(x[p, r, c] / values[c, c]) for x in (out, wanted))
        keys = batch.groups[c // COLUMNS]
        said = f"the weight {got:.6g}, and in the reference {right:.6g}"
        key = f"key j={int(keys.j[p, 0, 0, 0, c % COLUMNS])}"
        parts = self._parts(batch, keys, p, right, got)
        return diagnostic(f"{key} has {said} {self._point(batch, p, r)}", *parts)

    def _parts(self, batch: Batch, keys: Keys, p: int, right: float, got: float) -> tuple[Node, ...]:
        """What a wrong weight points to."""
        kernel = self.points.kernel
        if not math.isfinite(got):
            return (batch.blame,)
        if batch.settled:
            return (kernel.region("row_probs") if abs(got) > abs(right) == 0 else batch.blame,)
        seen = bool(keys.visited[p]), bool(keys.masked[p])
        return parts_of_weight(kernel, right, got, *seen, batch.blame, len(batch.groups) == 1)

    def _of_peak(self, batch: Batch, peak: Tensor) -> Diagnostic | None:
        """Where weights are relative to a reference, none is too large for sums of them."""
        if not self.spec.shift or not bool((peak > _LARGEST_WEIGHT).any()):
            return None
        p, r = (peak > _LARGEST_WEIGHT).nonzero()[0].tolist()
        size = f"a weight of 2^{math.log2(float(peak[p, r])):.0f} is added up"
        message = f"{size}, where sums hold 2^{math.log2(_LARGEST_WEIGHT):.0f}, {self._point(batch, p, r)}"
        return diagnostic(message, self.points.kernel.region("row_update"))

    def _of_lse(self, batch: Batch, j: Tensor, lse: Tensor, wanted: Tensor, allowed: Tensor) -> Diagnostic | None:
        has_value = ~wanted.isnan() & (wanted != torch.inf)
        wrong = ~((lse - wanted).abs() <= allowed) & has_value & (lse != wanted)
        if not bool(wrong.any()):
            return None
        p, r = wrong.nonzero()[0].tolist()
        said = f"the LSE is {float(lse[p, r]):.6g}, and in the reference {float(wanted[p, r]):.6g}"
        keys = f"over keys j={int(j[p].min())} to {int(j[p].max())}"
        return diagnostic(f"{said} {keys} {self._point(batch, p, r)}", batch.blame)

    def _point(self, batch: Batch, p: int, r: int) -> str:
        place = int(batch.which[p])
        b, h, i = int(self.places.b[place]), int(self.places.h[place]), int(self.places.i[place, r])
        rounded = "" if self.points.dtype == torch.float64 else ", in fp32"
        return f"in row i={i} of head h={h}, batch b={b}; {sizes(self.points.shape)}{rounded}"
