"""Backward passes with one mistake each, in the regions of their kernels: a check that accepts one of them is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cubridge.ir.algebra.exprs import TRUE, number
from cubridge.ir.nodes import Assign, Attr, Binary, Call, Expr, FloatLit, IntLit, Kernel, Name, Scalar, Stmt
from cubridge.ir.walk import substitute
from cubridge.judge.gradient_runs import Pass

if TYPE_CHECKING:
    from cubridge.ir.gradient import GradientSpec

Mutation = Callable[[Pass], Pass]


def backward_mutants(kernels: Pass, gradient: GradientSpec) -> Iterator[tuple[str, Pass]]:
    """Each mistake that can be made in the pass of `gradient`, by name."""
    names = ["a query tile skipped", "the weight's derivative dropped"]
    names += ["scale on dq only"] if number(gradient.dk_scale) != 1 else []
    names += ["scale on dk only"] if number(gradient.dq_scale) != 1 else []
    names += ["the wrong heads"] if gradient.key_head != Name("h") else []
    names += ["the score's derivative dropped"] if kernels.pairs.region("score_grad").body else []
    names += ["mask missing"] if gradient.mask != TRUE else []
    names += ["delta missing", "LSE off by ln 2"] if gradient.coefficients else []
    names += ["dlse ignored"] if gradient.coefficients and gradient.forward.lse is not None else []
    for name in names:
        wrong = MUTATIONS[name](kernels)
        if wrong != kernels:
            yield name, wrong


def _put(kernel: Kernel, region: str, target: str, values: dict[str, Expr]) -> Kernel:
    """What a region assigns to `target`, with other values of what it reads."""

    def changed(stmt: Stmt) -> Stmt:
        is_it = isinstance(stmt, Assign) and stmt.target == Name(target)
        return replace(stmt, value=substitute(stmt.value, values)) if is_it and isinstance(stmt, Assign) else stmt

    return _with_body(kernel, region, map(changed, kernel.region(region).body))


def _with_body(kernel: Kernel, region: str, body: Iterable[Stmt]) -> Kernel:
    made = replace(kernel.region(region), body=tuple(body))
    return replace(kernel, regions=tuple(made if r.name == region else r for r in kernel.regions))


def _unscaled(kernel: Kernel) -> Kernel:
    fields = (
        replace(f, type=replace(f.type, host=FloatLit(1.0)))
        if f.name == "grad_scale" and isinstance(f.type, Scalar)
        else f
        for f in kernel.params
    )
    return replace(kernel, params=tuple(fields))


def _one_tile_less(kernel: Kernel) -> Kernel:
    count = kernel.region("query_count")
    assert count.result is not None
    fewer = replace(count, result=Call("maximum", (Binary("-", count.result, IntLit(1)), IntLit(0))))
    return replace(kernel, regions=tuple(fewer if r.name == count.name else r for r in kernel.regions))


def _other_heads(kernel: Kernel) -> Kernel:
    """Query heads from the number of the key head on, as if there were no groups."""
    tile = Name("tile")
    body = (
        replace(s, value=Attr(tile, "hk")) if isinstance(s, Assign) and s.target == Attr(tile, "h") else s
        for s in kernel.schedule.body
    )
    return replace(kernel, schedule=replace(kernel.schedule, body=tuple(body)))


_LATE: Final[Expr] = Binary("+", Name("lse"), Name("LN2"))
MUTATIONS: Final[dict[str, Mutation]] = {
    "delta missing": lambda k: k._replace(rows=_put(k.rows, "row_terms", "delta", {"delta": FloatLit(0.0)})),
    "dlse ignored": lambda k: k._replace(rows=_put(k.rows, "row_terms", "delta", {"d_lse": FloatLit(0.0)})),
    "LSE off by ln 2": lambda k: k._replace(rows=_put(k.rows, "row_terms", "lse", {"lse": _LATE})),
    "mask missing": lambda k: k._replace(pairs=_with_body(k.pairs, "mask", ())),
    "the weight's derivative dropped": lambda k: k._replace(
        pairs=_put(k.pairs, "probs_grad", "dp", {"w": FloatLit(1.0)})
    ),
    "the score's derivative dropped": lambda k: k._replace(pairs=_with_body(k.pairs, "score_grad", ())),
    "a query tile skipped": lambda k: k._replace(pairs=_one_tile_less(k.pairs)),
    "the wrong heads": lambda k: k._replace(pairs=_other_heads(k.pairs)),
    "scale on dq only": lambda k: k._replace(pairs=_unscaled(k.pairs)),
    "scale on dk only": lambda k: k._replace(last=_unscaled(k.last)),
}
