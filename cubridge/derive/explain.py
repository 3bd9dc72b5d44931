"""A gradient as text, for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cubridge.ir.algebra.arithmetic import ONE, ZERO, times
from cubridge.ir.algebra.exprs import TRUE
from cubridge.ir.gradient import Coefficient, GradientSpec
from cubridge.ir.nodes import Call, Expr, IntLit, Unary
from cubridge.ir.printer import print_expr
from cubridge.ir.walk import free_names, walk

_LABEL: Final = 11
_SOURCES: Final = {
    "constant": "it does not vary with the score",
    "weight": "from the weight and {lse}: x = {lse} + log({weight})",
    "score": "from the score x, which the derivative of the weight keeps anyway",
    "kept": "computed with the score and kept, as `{slope}`",
}
_TIES: Final = {0.0: "passes nothing on, as a ReLU", 0.5: "halves it", 1.0: "passes all of it on, as a clamp"}


def explain_gradient(gradient: GradientSpec) -> str:
    """What the forward pass saves, what each kernel computes, and what gets no gradient."""
    lines = [*_saved(gradient), *_rows(gradient), *_pairs(gradient), *_sums(gradient), *_edges(gradient)]
    return "\n".join(f"{label:<{_LABEL}}{text}" for label, text in lines) + "\n"


def _saved(g: GradientSpec) -> Iterator[tuple[str, str]]:
    names = [f"{n} = m + log({print_expr(g.total)})" if n == g.words.lse and g.total else n for n in g.saved]
    given = g.words.dout if g.forward.lse is None else f"{g.words.dout}[b, h, i, e] and {g.words.dlse}[b, h, i]"
    yield "gradient", f"by q, k, v, from {given}"
    yield "saved", ", ".join(names) or "nothing but q, k and v"


def _rows(g: GradientSpec) -> Iterator[tuple[str, str]]:
    yield "row", f"A = {print_expr(g.acc_grad)}"
    for coefficient in g.coefficients:
        yield "", f"{coefficient.name} = {_coefficient(coefficient)}"


def _coefficient(c: Coefficient) -> str:
    alone = "" if c.alone == ZERO else print_expr(c.alone)
    match c.each:
        case IntLit(0):
            return alone
        case Unary("-", each):
            return f"{alone} - sum over e of {print_expr(each)}".strip()
        case _:
            return f"{alone} + sum over e of {print_expr(c.each)}".removeprefix(" + ")


def _pairs(g: GradientSpec) -> Iterator[tuple[str, str]]:
    words = g.words
    yield "pair", f"{words.weight} = {print_expr(g.weight)}"
    yield "", f"{words.dp} = sum over e of A[e] * v[j, e]"
    for n, part in enumerate(g.parts):
        yield "", f"{words.dx} {'=' if n == 0 else '+='} {print_expr(part.value)}    {_where(part.over)}"
    everywhere = any(part.over == TRUE for part in g.parts)
    yield "", f"ds = {print_expr(g.score_grad)}" + ("" if everywhere else f"    where {words.dx} has a part, else 0")
    yield "slope", f"{print_expr(times(g.dq_scale, g.slope))}: {_SOURCES[g.slope_from].format(**_words(g))}"


def _words(g: GradientSpec) -> dict[str, str]:
    return {"lse": g.words.lse, "weight": g.words.weight, "slope": g.words.slope}


def _where(keys: Expr) -> str:
    return "at every key" if keys == TRUE else f"where {print_expr(keys)}, else 0"


def _sums(g: GradientSpec) -> Iterator[tuple[str, str]]:
    scales = ["" if s == ONE else f"{print_expr(s)} * " for s in (g.dq_scale, g.dk_scale)]
    over = f"over rows i and heads h with kv = {print_expr(g.key_head)}"
    yield "sums", f"dq[i] = {scales[0]}sum over keys of ds * k[j]"
    yield "", f"dk[j] = {scales[1]}sum {over} of ds * q[i]"
    yield "", f"dv[j] = sum {over} of {g.words.weight} * A    {_where(g.mask)}"


def _edges(g: GradientSpec) -> Iterator[tuple[str, str]]:
    spec = g.forward
    exprs = (spec.score, spec.weight, *(r.body for r in spec.rows))
    if any(isinstance(n, Call) and n.fn in ("maximum", "minimum") and _varies(n) for e in exprs for n in walk(e)):
        yield "at bounds", f"a maximum or minimum of scores {_TIES[g.tie]}"
    if g.still:
        yield "none of", ", ".join(g.still)


def _varies(expr: Expr) -> bool:
    return bool(free_names(expr) & {"s", "x"})
