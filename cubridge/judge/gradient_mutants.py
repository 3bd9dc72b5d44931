"""Plausible wrong backward kernels, as wrong gradients: the judge must reject each one that moves a result beyond the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from cubridge.ir.algebra.arithmetic import ONE, ZERO, plus, times
from cubridge.ir.algebra.exprs import TRUE
from cubridge.ir.gradient import GradientSpec
from cubridge.ir.nodes import Binary, Call, Expr, IntLit, Name, Node
from cubridge.ir.walk import free_names, rewrite, substitute

Mutation = Callable[[GradientSpec], GradientSpec]
"""From a gradient to a wrong one; the same where the mutation does not apply."""


def gradient_mutants(gradient: GradientSpec) -> Iterator[tuple[str, GradientSpec]]:
    """Every mutation that applies to `gradient`, by name."""
    for name, mutate in GRADIENT_MUTATIONS.items():
        wrong = mutate(gradient)
        if wrong != gradient:
            yield name, wrong


# ---- rows ------------------------------------------------------------------------------------------------------------


def _coefficients(change: Callable[[Expr, Expr], tuple[Expr, Expr]]) -> Mutation:
    """Another (each, alone) of every row reduction."""

    def mutate(g: GradientSpec) -> GradientSpec:
        changed = ((c, change(c.each, c.alone)) for c in g.coefficients)
        return replace(g, coefficients=tuple(replace(c, each=each, alone=alone) for c, (each, alone) in changed))

    return mutate


def _output_factor_dropped(g: GradientSpec) -> GradientSpec:
    return replace(g, acc_grad=Name(g.words.dout))


# ---- pairs -----------------------------------------------------------------------------------------------------------


def _lse_in_base_2(g: GradientSpec) -> GradientSpec:
    """A base of logarithms that is mixed up moves it."""
    moved = {g.words.lse: plus(Name(g.words.lse), Name("LN2"))}
    return replace(g, weight=substitute(g.weight, moved))


def _weight_slope_dropped(g: GradientSpec) -> GradientSpec:
    """dx = dp + the coefficients, whatever the weight is."""
    factors = [Name(g.words.dp), *(Name(c.name) for c in g.coefficients)]

    def bare(value: Expr) -> Expr:
        total: Expr = ZERO
        for factor in factors:
            total = plus(total, factor) if factor.id in free_names(value) else total
        return total

    return replace(g, parts=tuple(replace(p, value=bare(p.value)) for p in g.parts))


def _score_slope_dropped(g: GradientSpec) -> GradientSpec:
    return replace(g, score_grad=Name(g.words.dx))


def _score_slope_of_another(g: GradientSpec) -> GradientSpec:
    """Of the weight for its logarithm, of the score for the product q.k, of the next head for this one."""

    def no_logarithm(node: Node) -> Node:
        return node.args[0] if isinstance(node, Call) and node.fn == "log" else node

    next_head = Binary("%", plus(Name("h"), ONE), Name("Hq"))
    if g.slope_from == "kept":
        return replace(g, slope=substitute(g.slope, {"s": Name("x")}))
    return replace(g, score_grad=substitute(rewrite(g.score_grad, no_logarithm), {"h": next_head}))


def _everywhere(g: GradientSpec) -> GradientSpec:
    return replace(g, mask=TRUE, parts=tuple(replace(p, over=TRUE) for p in g.parts))


def _restricted(condition: Expr, sums: bool = True, weights: bool = True) -> Mutation:
    """Pairs lost that `condition` does not hold for."""

    def mutate(g: GradientSpec) -> GradientSpec:
        parts = tuple(replace(p, over=Binary("&", p.over, condition)) for p in g.parts)
        return replace(g, mask=Binary("&", g.mask, condition) if weights else g.mask, parts=parts if sums else g.parts)

    return mutate


# ---- sums ------------------------------------------------------------------------------------------------------------


def _scale_on_dq_only(g: GradientSpec) -> GradientSpec:
    return replace(g, dk_scale=ONE)


def _scale_twice(g: GradientSpec) -> GradientSpec:
    return replace(g, dq_scale=times(g.dq_scale, g.dq_scale), dk_scale=times(g.dk_scale, g.dk_scale))


def _heads_tiled(g: GradientSpec) -> GradientSpec:
    return replace(g, key_head=Binary("%", Name("h"), Name("Hk")))


def _last_of(length: str) -> Expr:
    return Binary("-", Name(length), ONE)


GRADIENT_MUTATIONS: Final[dict[str, Mutation]] = {
    "delta missing": _coefficients(lambda each, alone: (ZERO, alone)),
    "delta added": _coefficients(lambda each, alone: (times(IntLit(-1), each), alone)),
    "dlse ignored": _coefficients(lambda each, alone: (each, ZERO)),
    "dlse subtracted": _coefficients(lambda each, alone: (each, times(IntLit(-1), alone))),
    "factor of the output dropped": _output_factor_dropped,
    "LSE off by ln 2": _lse_in_base_2,
    "derivative of the weight dropped": _weight_slope_dropped,
    "derivative of the score dropped": _score_slope_dropped,
    "derivative of the score by another variable": _score_slope_of_another,
    "mask missing": _everywhere,
    "mask missing in dv": lambda g: replace(g, mask=TRUE),
    "mask missing in dq and dk": lambda g: replace(_everywhere(g), mask=g.mask),
    "first row lost": _restricted(Binary(">", Name("i"), ZERO)),
    "last key lost": _restricted(Binary("<", Name("j"), _last_of("Lk"))),
    "last row lost in dv": _restricted(Binary("<", Name("i"), _last_of("Lq")), sums=False),
    "first key lost in dq and dk": _restricted(Binary(">", Name("j"), ZERO), weights=False),
    "scale on dq only": _scale_on_dq_only,
    "scale twice": _scale_twice,
    "groups of heads tiled": _heads_tiled,
}
