"""GradientSpec: the gradient of an attention, as expressions.

From what the forward pass saves and from dout [B, Hq, Lq, D] and dlse [B, Hq, Lq], for the loss whose gradients these are:

    a row kernel, of each row       A[e] = acc_grad                            the gradient of acc, the sum of weight * v
                                    dR = alone + sum_e each                    that of each row reduction R
    the main kernel, of each pair   dp = sum_e A[e] v[j, e]
                                    dx = sum of the parts, each where its `over` holds and 0 elsewhere
                                    ds = score_grad, where any `over` holds and 0 elsewhere
    sums                            dv[j, e] = sum over rows and heads of weight * A[e], where `mask` holds
                                    dq[i, d] = dq_scale * sum over keys of ds * k[j, d]
                                    dk[j, d] = dk_scale * sum over rows and heads of ds * q[i, d]

with the score of `forward`. The heads of a sum are those whose `key_head` it is, those that read it. "0 elsewhere" is selected,
never multiplied. A pair whose score is -inf is hidden too. Of a row that sees no key, A and what dout gives are 0."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Literal

from cubridge.ir.nodes import Expr
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import free_names

SlopeSource = Literal["constant", "weight", "score", "kept"]
"""What the derivative of the score is computed from: nothing that varies with the score; the weight and the saved `lse`; the score
x; itself, kept from when the score was computed."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the values are called, in the expressions of one gradient."""

    dout: str = "dout"
    dlse: str = "dlse"
    out: str = "out"
    lse: str = "lse"
    weight: str = "w"
    dp: str = "dp"
    dx: str = "dx"
    slope: str = "slope"

    @staticmethod
    def beside(taken: Collection[str]) -> Words:
        """Names that none of `taken` is."""

        def free(name: str) -> str:
            return name if name not in taken else free(f"{name}_")

        return Words(**{f.name: free(f.default) for f in fields(Words)})  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """The gradient `name` of row reduction `row`: `alone` of the row, and the sum of `each` over output columns."""

    name: str
    row: str
    each: Expr
    alone: Expr


@dataclass(frozen=True, slots=True)
class Part:
    """A part of dx: `value` where `over` holds."""

    over: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class GradientSpec:
    """See the module docstring. What the expressions read besides sizes, captures and b, h, i, j:

    acc_grad, each     dout and the saved values
    alone              dlse and the saved values of the row
    weight             x and the saved values
    parts              dp, the coefficients, w (the weight, hidden or not), x, and the saved values of the row
    score_grad         dx, and what `slope_from` says: w and lse, or x, or slope

    `saved`: what the forward pass hands on: the output, or acc where it does not say enough; of each row `lse`, which is m +
    log(total), or m; and row reductions, at that m. `total`: what becomes 1 where m is `lse`; None where `lse` is not saved.
    `slope`: d score / d s without the scale, of s.
    `tie`: see `algebra.derivative`. `still`: captures of floats, whose gradients are not derived."""

    forward: AttentionSpec
    words: Words
    saved: tuple[str, ...]
    total: Expr | None
    acc_grad: Expr
    coefficients: tuple[Coefficient, ...]
    weight: Expr
    mask: Expr
    parts: tuple[Part, ...]
    slope: Expr
    slope_from: SlopeSource
    score_grad: Expr
    dq_scale: Expr
    dk_scale: Expr
    key_head: Expr
    tie: float
    still: tuple[str, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        """What the main kernel must keep of each pair once the weight has taken the place of the score."""
        read = free_names(self.score_grad).union(*(free_names(p.value) for p in self.parts))
        return tuple(name for name in ("x", self.words.slope) if name in read)
