"""The numbers that a score can be: an interval of its expression, whatever the queries and keys are."""

from __future__ import annotations

from cubridge.ir.algebra.exprs import MINUS_INF
from cubridge.ir.algebra.hosts import host_interval
from cubridge.ir.algebra.interval import NONNEGATIVE, REALS, Interval, image_of
from cubridge.ir.nodes import Call, Expr, Kernel, Name
from cubridge.passes.scale import with_hosts
from cubridge.passes.score import score_of
from cubridge.passes.softmax import Softmax, unit


def score_range(score: Expr) -> Interval:
    """Of a score as a reference has it. A hidden key, -inf, is no number."""
    match score:
        case Name("i" | "j"):
            return NONNEGATIVE
        case Name():
            return host_interval(score)
        case Call("where", (_, value, other)) if other == MINUS_INF:
            return score_range(value)
        case Call("where", (_, other, value)) if other == MINUS_INF:
            return score_range(value)
        case _:
            return image_of(score, score_range, REALS)


def exponent_range(kernel: Kernel, softmax: Softmax) -> Interval:
    """Of the exponents of e that a kernel takes its weights from, before anything is subtracted."""
    of_score = score_range(with_hosts(score_of(kernel), kernel))
    return of_score * host_interval(unit(kernel, softmax).to_expr())
