"""The judge's numbers: the recorded reference run again in fp64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cubridge.frontend.reference.algebra.selection import MASK_FILL
from cubridge.frontend.reference.lift import Lifter
from cubridge.frontend.reference.replay import Replay


@dataclass(frozen=True, slots=True)
class OracleValues:
    """Shapes: out [B, Hq, Lq, D], lse [B, Hq, Lq] or None, empty [B, Hq, Lq]; fp64.

    Rows of `empty` see no key: out is 0 there, whatever the reference gives (`at_empty`: its NaN or mean). lse is what the
    reference gives, but -inf where its sums see no key and it gives NaN or a fill (`lse_at_empty`: what that was)."""

    out: Tensor
    lse: Tensor | None
    empty: Tensor
    at_empty: Tensor
    lse_at_empty: Tensor


@dataclass(frozen=True, slots=True)
class Oracle:
    """The reference in fp64: every float and every cast to a float is fp64, constants are as the reference rounds them."""

    lifter: Lifter

    def raw(
        self, q: Tensor, k: Tensor, v: Tensor, extra: Mapping[str, Tensor | int | float | bool]
    ) -> tuple[Tensor, Tensor | None]:
        """(out, lse) as the reference gives them, NaN where it gives NaN."""
        recording = self.lifter.recording
        replay = Replay.start(
            recording, self.lifter.sizes, sizes_of(q, k), {**extra, "q": q, "k": k, "v": v}, wide=True
        )
        values = [replay.tensor(t).double() for t in recording.outputs]
        return values[0], values[1] if len(values) > 1 else None

    def gradients(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        extra: Mapping[str, Tensor | int | float | bool],
        dout: Tensor,
        dlse: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Those of q, k, v by PyTorch, NaN where a row without keys makes it so."""
        recording = self.lifter.recording
        with torch.enable_grad():
            leaves = tuple(t.detach().double().requires_grad_() for t in (q, k, v))
            given = {**extra, **dict(zip("qkv", leaves, strict=True))}
            replay = Replay.start(recording, self.lifter.sizes, sizes_of(q, k), given, wide=True, differentiable=True)
            results = [replay.tensor(t).double() for t in recording.outputs]
            loss = (results[0] * dout.double()).sum()
            if len(results) > 1 and dlse is not None:
                loss = loss + (results[1].reshape(dlse.shape) * dlse.double()).sum()
            dq, dk, dv = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return dq, dk, dv

    def values(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        extra: Mapping[str, Tensor | int | float | bool],
        empty: Tensor,
        without_lse: Tensor,
    ) -> OracleValues:
        """`empty` [B, Hq, Lq]: the rows that see no key, by the mask of the spec; `without_lse`: those whose sums see none."""
        out, lse = self.raw(q, k, v, extra)
        at_empty, lse_at_empty = out[empty], out.new_empty(0)
        out = out.masked_fill(empty[..., None], 0.0)
        if lse is not None:
            lse = lse.reshape(empty.shape)
            meaningless = without_lse & ~(lse > MASK_FILL / 2) & (lse != -torch.inf)
            lse_at_empty = lse[meaningless]
            lse = lse.masked_fill(meaningless, -torch.inf)
        return OracleValues(out, lse, empty, at_empty, lse_at_empty)


def sizes_of(q: Tensor, k: Tensor) -> dict[str, int]:
    return {"B": q.shape[0], "Hq": q.shape[1], "Hk": k.shape[1], "Lq": q.shape[2], "Lk": k.shape[2], "D": q.shape[3]}
