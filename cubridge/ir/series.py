"""Weights e / (1 + e) that a kernel takes as the first terms of their series where e is small: what they are without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cubridge.ir.nodes import Assign, Binary, Call, Expr, FloatLit, If, Kernel, Name, Stmt

LONGEST: Final = 0.022
"""Up to here e - e**2 is within 2 ** -11 of e / (1 + e), relatively: what rounding a weight to fp16 may change, an eighth of what
rounding to bf16 may. The bound of outputs has as much for it. One number, since one text is compiled for both."""
SATURATED: Final = 1e9
"""From here on e / (1 + e) is 1 in fp32, and 1 + e is finite before."""
_ONE: Final = FloatLit(1.0)


def with_series(power: Expr, small: float, w: Name, large: Name) -> tuple[Stmt, ...]:
    """Region code of the weight 1 / (1 + exp2(-power)): by the series in rows whose every e = exp2(power) of a key tile is at most
    `small`."""
    s = Name("s")
    return (
        Assign(w, Call("exp2", (power,))),
        Assign(large, Binary(">", Call("rowmax", (w,)), FloatLit(small))),
        Assign(s, Binary("-", w, Binary("*", w, w))),
        If(Call("any_lane", (large,)), (Assign(s, Call("where", (large, _odds(w), s))),)),
    )


def without_series(kernel: Kernel) -> Kernel:
    """The kernel with the function in place of its series; the same object where there is none, or one that goes too far."""
    region = kernel.region("row_probs")
    match region.body[-4:]:
        case (
            Assign(Name() as w, Call("exp2", (power,))),
            Assign(Name() as large, Binary(">", Call("rowmax", _), FloatLit(small))),
            Assign(),
            If(),
        ) if 0 < small <= LONGEST and region.body[-4:] == with_series(power, small, w, large):
            weight = Call("rcp", (Binary("+", _ONE, Call("exp2", (_negative(power),))),))
            made = replace(region, body=(*region.body[:-4], Assign(Name("s"), weight)))
            return replace(kernel, regions=tuple(made if r.name == region.name else r for r in kernel.regions))
        case _:
            return kernel


def _odds(e: Expr) -> Expr:
    """e / (1 + e), also where that is not finite; NaN of NaN."""
    return Call(
        "where", (Binary(">", e, FloatLit(SATURATED)), _ONE, Binary("*", e, Call("rcp", (Binary("+", _ONE, e),))))
    )


def _negative(power: Expr) -> Expr:
    match power:
        case Binary("-", left, right):
            return Binary("-", right, left)
        case _:
            return Binary("-", FloatLit(0.0), power)
