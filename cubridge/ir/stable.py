"""Forms that the device has, and that keep their accuracy in fp32, for expressions whose plain form does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cubridge.ir.algebra.hosts import is_nonnegative
from cubridge.ir.nodes import Binary, Call, Expr, FloatLit, Index, IntLit, Name, Node, Unary
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import map_children, walk

_VARYING: Final = frozenset({"i", "j", "b", "h", "e", "s", "x", "m", "acc"})


def stable(expr: Expr) -> Expr:
    """The expression with
        log(1 + exp(u))   as   maximum(u, 0) + log1p(exp(-abs(u)))
        log(1 + a * exp(u))   as   the same of u + log(a), where a is surely >= 0
        log(1 + u)        as   log1p(u)
        exp(u) - 1        as   expm1(u)
        1 + erf(u)        as   erfc(-u)
        u ** 0.3          as   exp(0.3 * log(u)), where u differs from element to element
    so that small results are not lost beside 1, and large ones do not overflow."""

    def change(node: Node) -> Node:
        node = map_children(node, change)
        match node:
            case Call("log", (Binary("+", left, right),)) if _is_one(left) or _is_one(right):
                return _log_of_one_and(right if _is_one(left) else left)
            case Call("log1p", (Call("exp", (power,)),)):
                return _softplus(power)
            case Binary("+", Call("erf", (x,)), one) | Binary("+", one, Call("erf", (x,))) if _is_one(one):
                return Call("erfc", (Unary("-", x),), span=node.span)
            case Binary("**", base, FloatLit() as power) if _varies(base):
                return Call("exp", (Binary("*", power, Call("log", (base,))),), span=node.span)
            case Binary("-", Call("exp", (power,)), one) if _is_one(one):
                return Call("expm1", (power,), span=node.span)
            case _:
                return node

    result = change(expr)
    assert isinstance(result, Expr)
    return result


def stable_spec(spec: AttentionSpec) -> AttentionSpec:
    """The same attention in these forms: its values exist wherever those of the reference do."""
    rows = tuple(replace(row, body=stable(row.body)) for row in spec.rows)
    lse = None if spec.lse is None else stable(spec.lse)
    return replace(
        spec, score=stable(spec.score), weight=stable(spec.weight), rows=rows, finalize=stable(spec.finalize), lse=lse
    )


def _is_one(expr: Expr) -> bool:
    return isinstance(expr, IntLit | FloatLit) and expr.value == 1


def _varies(expr: Expr) -> bool:
    """Does the host not know it."""
    return any(isinstance(x, Index) or (isinstance(x, Name) and x.id in _VARYING) for x in walk(expr))


def _log_of_one_and(value: Expr) -> Expr:
    match value:
        case Call("exp", (power,)):
            return _softplus(power)
        case Binary("*", factor, Call("exp", (power,))) | Binary("*", Call("exp", (power,)), factor) if is_nonnegative(
            factor
        ):
            return _softplus(Binary("+", power, Call("log", (factor,)), span=value.span))
        case _:
            return Call("log1p", (value,), span=value.span)


def _softplus(power: Expr) -> Expr:
    positive = power.args[0] if isinstance(power, Call) and power.fn == "abs" else power
    if isinstance(power, Unary) and power.op == "-" and isinstance(power.operand, Call) and power.operand.fn == "abs":
        return Call("log1p", (Call("exp", (power,)),), span=power.span)
    large = Call("maximum", (power, FloatLit(0.0)))
    return Binary("+", large, Call("log1p", (Call("exp", (Unary("-", Call("abs", (positive,))),)),)), span=power.span)
