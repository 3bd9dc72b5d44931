"""The derivative of the score: its constant factor, which the sums take, and what the rest is computed from.

By the time that it is needed the weight has taken the place of the score. In this order: a derivative that does not vary with the
score needs neither. One of the score's value alone, x, comes from the weight and `lse` where the weight is exp(x - m), for
x = lse + log(w) is exact; and from x where the weight's derivative keeps x anyway. Any other is kept itself."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.ir.algebra.arithmetic import ONE, ZERO, folded, literal, minus, negative, over, plus, times
from cubridge.ir.algebra.derivative import derivative
from cubridge.ir.algebra.exprs import number
from cubridge.ir.algebra.hosts import is_positive
from cubridge.ir.gradient import SlopeSource, Words
from cubridge.ir.nodes import SIZES, Binary, Call, Expr, Index, Name, Node, Unary
from cubridge.ir.parser import parse_expr
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.stable import stable
from cubridge.ir.walk import free_names, rewrite, substitute, walk

_RAW = "s"
_SCORE = "x"


@dataclass(frozen=True, slots=True)
class Slopes:
    """As in `GradientSpec`."""

    slope: Expr
    source: SlopeSource
    score_grad: Expr
    scale: Expr


def slopes(spec: AttentionSpec, words: Words, has_lse: bool, keeps_score: bool, tie: float) -> Slopes:
    """`has_lse`: the row's `lse` is saved. `keeps_score`: x is kept for other reasons."""
    scale, slope = _split(stable(derivative(spec.score, _RAW, tie)), {c.name for c in spec.captures if not c.extents})
    dx = Name(words.dx)
    if _RAW not in free_names(slope):
        return Slopes(slope, "constant", times(dx, slope), scale)
    of_score = _of_score(slope, spec.score)
    if of_score is not None and has_lse and spec.weight == _EXPONENTIAL:
        logarithm = plus(Name(words.lse), Call("log", (Name(words.weight),)))
        value = substitute(of_score, {_SCORE: logarithm})
        seen = Binary(">", Name(words.weight), ZERO)
        return Slopes(slope, "weight", Call("where", (seen, times(dx, value), ZERO)), scale)
    if of_score is not None and keeps_score:
        return Slopes(slope, "score", times(dx, of_score), scale)
    return Slopes(slope, "kept", times(dx, Name(words.slope)), scale)


_EXPONENTIAL = parse_expr("exp(x - m)")


def _split(slope: Expr, numbers: set[str]) -> tuple[Expr, Expr]:
    """The factor that the launch knows, and the rest."""
    host: tuple[list[Expr], list[Expr]] = ([], [])
    rest: tuple[list[Expr], list[Expr]] = ([], [])
    coefficient = 1.0
    for factor, below in _factors(slope, below=False):
        value = number(factor)
        if value is not None and value != 0:
            coefficient = coefficient / value if below else coefficient * value
        else:
            known = free_names(factor) <= {*SIZES, *numbers} and not any(isinstance(x, Index) for x in walk(factor))
            (host if known else rest)[below].append(factor)
    if not host[0] and not host[1] and rest == ([], []):
        return literal(coefficient), ONE
    return times(literal(coefficient), _quotient(*host)), _quotient(*rest)


def _factors(expr: Expr, below: bool) -> list[tuple[Expr, bool]]:
    match expr:
        case Unary("-", operand):
            return [(literal(-1), below), *_factors(operand, below)]
        case Binary("*" | "/" as op, left, right):
            return [*_factors(left, below), *_factors(right, below != (op == "/"))]
        case _:
            return [(expr, below)]


def _quotient(above: list[Expr], below: list[Expr]) -> Expr:
    result: Expr = ONE
    for factor in above:
        if factor in below:
            below = [x for n, x in enumerate(below) if n != below.index(factor)]
        else:
            result = times(result, factor)
    for factor in below:
        result = over(result, factor)
    return result


def _of_score(slope: Expr, score: Expr) -> Expr | None:
    """The slope as an expression of x, where what the score does last can be undone; None where it reads s in another way."""
    inner, of_x = _undone(score, Name(_SCORE))
    found = folded(rewrite(slope, lambda node: _put(node, inner, of_x)))
    return None if _RAW in free_names(found) else found


def _put(node: Node, inner: Expr, of_x: Expr) -> Node:
    return of_x if node == inner else node


def _undone(score: Expr, value: Expr) -> tuple[Expr, Expr]:
    """(inner, of): a part of the score, and it as an expression of the score's value. Only constants are undone: a bias may be so
    large that little of the score is left beside it."""
    match score:
        case Unary("-", operand):
            return _undone(operand, negative(value))
        case Binary("+", left, right) if free_names(right) <= {*SIZES}:
            return _undone(left, minus(value, right))
        case Binary("+", left, right) if free_names(left) <= {*SIZES}:
            return _undone(right, minus(value, left))
        case Binary("-", left, right) if free_names(right) <= {*SIZES}:
            return _undone(left, plus(value, right))
        case Binary("*", left, right) if is_positive(left):
            return _undone(right, over(value, left))
        case Binary("*", left, right) if is_positive(right):
            return _undone(left, over(value, right))
        case Binary("/", left, right) if is_positive(right):
            return _undone(left, times(value, right))
        case _:
            return score, value
