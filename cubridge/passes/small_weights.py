"""small-weights: weights e / (1 + e) without a division, where e is small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cubridge.ir.nodes import Assign, Attr, Binary, Call, FloatLit, Kernel, Name
from cubridge.ir.series import LONGEST, with_series
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.regions import with_region


@dataclass(frozen=True, slots=True)
class SmallWeights(Pass):
    """Take weights of a sigmoid that a bias makes small by two terms of their series, where those of a row in a key tile are.
    rewrite:   s = rcp(1 + exp2(p.bias - x))   -->   w = exp2(x - p.bias)
                                                     large = rowmax(w) > 0.022
                                                     s = w - w * w
                                                     if any_lane(large): s = where(large, w * rcp(1 + w), s)
               a branch that a warp takes as a whole, and one special function an element in place of two
    ensures:   the same weights within 2 ** -11; 1 where w is past 1e9."""

    name: ClassVar[str] = "small-weights"
    example: ClassVar[str] = (
        'rewrite-normalize{weight="1.0 / (1.0 + exp(log(Lk) - x))",finalize="acc"},'
        'approximate{exact="tanh"},small-weights'
    )

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        match kernel.region("row_probs").body:
            case (Assign(Name("s"), Call("rcp", (Binary("+", FloatLit(1.0), Call("exp2", (power,))),))),):
                pass
            case _:
                return kernel
        match power:
            case Binary("-", Attr(Name("p")) as bias, less):
                body = with_series(Binary("-", less, bias), LONGEST, Name("w"), Name("large"))
                return with_region(kernel, "row_probs", body)
            case _:
                return kernel
