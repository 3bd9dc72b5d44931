"""What a hook must make of a kernel's own score, so that exponents are those of a reference, whatever unit scores have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Binary, Expr, FloatLit, Name, Unary
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import free_names, rewrite, substitute
from cubridge.judge.proof.read import ReadSpec

_TRIED: Final = (-3.0, -0.7, 0.0, 1.3, 5.0)
_CLOSE: Final = 1e-6
OWN: Final[Expr] = Name("x")


def score_hook(own: ReadSpec, spec: AttentionSpec, head_dim: int) -> Expr:
    """Over x, the kernel's own score. Errors: CU603 for scores that read more than s, or a kernel whose units are not plain."""
    sizes = {"D": head_dim}
    if free_names(spec.score) - {"s", "D", "inf", "LOG2E", "LN2", "pi"}:
        raise CuError(
            Diagnostic("CU603", "a hook of scores reads the score alone, and this reads more", spec.score.span)
        )
    scale = _slope(lambda s: _number(own.score, {"s": s, **sizes}))
    unit = _slope(lambda x: math.log2(_number(own.weight, {"x": x, "row.m": 0.0, **sizes})))
    if scale is None or unit is None:
        raise CuError(Diagnostic("CU603", "the kernel has scores in no plain unit of the exponent", spec.score.span))
    unit *= math.log(2)
    wanted = [_number(spec.score, {"s": s, **sizes}) for s in _TRIED]
    if all(abs(w - unit * scale * s) <= _CLOSE * (1 + abs(w)) for w, s in zip(wanted, _TRIED, strict=True)):
        return OWN
    score = substitute(_with_numbers(spec.score, head_dim), {"s": _times(OWN, 1 / scale)})
    return _times(score, 1 / unit)


def _slope(function: Callable[[float], float]) -> float | None:
    """The factor of a function that is one; None for another one."""
    factor = function(1.0)
    plain = all(abs(function(s) - factor * s) <= _CLOSE * (1 + abs(factor * s)) for s in _TRIED)
    return factor if plain and factor > 0 else None


def _number(expr: Expr, values: Mapping[str, float]) -> float:
    return float(evaluate_number(expr, values))  # pyright: ignore[reportArgumentType]


def _times(expr: Expr, factor: float) -> Expr:
    return expr if abs(factor - 1) <= _CLOSE else Binary("*", expr, FloatLit(factor))


def _with_numbers(expr: Expr, head_dim: int) -> Expr:
    """Every part without s as the number that it is."""

    def change(node: object) -> object:
        if isinstance(node, Binary | Unary | Name) and "s" not in free_names(node):
            value = _number(node, {"D": head_dim})
            return FloatLit(value) if math.isfinite(value) else node
        return node

    return rewrite(expr, change)  # pyright: ignore[reportArgumentType, reportReturnType]
