"""One problem of a check: inputs, what the oracle says of them, and how far a kernel may be from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cubridge.engine.dense import spec_values
from cubridge.ir.spec import Shape
from cubridge.judge.bound import Judgement, filled_rows, judge, lse_bound, output_bound, score_error, vagueness
from cubridge.judge.inputs import make_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.ir.functions import FunctionInfo
    from cubridge.judge.attention import Attention, Captures
    from cubridge.judge.inputs import Triple


@dataclass(frozen=True, slots=True)
class Problem:
    """Shapes: q [B, Hq, Lq, D]; k, v [B, Hk, Lk, D]; out and bound as q, fp64; lse and lse_bound [B, Hq, Lq] or None.

    `reference`: the error of the user's own half-precision reference over the bound, for comparison. `vagueness`: see
    `bound.vagueness`; `filled`: `bound.filled_rows`, None if there are none."""

    shape: Shape
    inputs: str
    q: Tensor
    k: Tensor
    v: Tensor
    captures: Captures
    out: Tensor
    bound: Tensor
    lse: Tensor | None
    lse_bound: Tensor
    reference: float
    vagueness: float = 0.0
    filled: Tensor | None = None

    def judge(self, out: Tensor, lse: Tensor | None) -> Judgement:
        """Compare what a kernel gave."""
        judgement = judge(self._compared(out, self.out), self.out, self.bound)
        if self.lse is None or lse is None:
            return judgement
        return replace(judgement, lse_error=judge(self._compared(lse, self.lse), self.lse, self.lse_bound).worst)

    def _compared(self, got: Tensor, expected: Tensor) -> Tensor:
        """`got`, with what is expected in filled rows, unless it is NaN there."""
        if self.filled is None:
            return got
        filled = self.filled.view(*self.filled.shape, *(1,) * (got.dim() - self.filled.dim()))
        return got.double().where(~filled | got.isnan(), expected)


def make_problem(
    attention: Attention, kind: str, shape: Shape, seed: int, dtype: str, approximated: Mapping[str, FunctionInfo]
) -> Problem:
    """The problem of these inputs. Raises what the reference raises at this shape, as CuError."""
    import torch

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    return problem_of(attention, kind, make_inputs(kind, shape, half, seed), dtype, approximated)


def problem_of(
    attention: Attention, kind: str, inputs: Triple, dtype: str, approximated: Mapping[str, FunctionInfo]
) -> Problem:
    """The problem of inputs (q, k, v) of `dtype`; `kind` names them. Raises as `make_problem`."""
    import torch

    q, k, v = inputs
    shape = Shape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])
    extra = attention.extra(shape)
    made = attention.captures(shape, extra, {"q": q, "k": k, "v": v})
    captures = {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in made.items()}
    values = spec_values(attention.spec, q, k, v, captures, approximated)
    out, lse = attention.oracle(q, k, v, extra)
    heads = torch.arange(shape.Hq) // (shape.Hq // shape.Hk) if shape.Hk else torch.arange(0)
    ds = score_error(values, q, k[:, heads])
    bound = output_bound(values, out, v[:, heads], ds, dtype)
    own = judge(attention.half(q, k, v, extra).nan_to_num(0.0), out, bound).worst
    lse = values.lse if lse is None else lse
    vague, filled = vagueness(values, out, v[:, heads], ds), filled_rows(values)
    return Problem(
        shape,
        kind,
        q,
        k,
        v,
        captures,
        out,
        bound,
        lse,
        lse_bound(values, ds),
        own,
        vague,
        filled if filled.any() else None,
    )
