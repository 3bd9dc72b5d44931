"""How large integers become: polynomials of sizes that they never pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import repeat

from cubridge.ir.algebra.exprs import operation
from cubridge.ir.algebra.poly import Poly, removed
from cubridge.ir.nodes import Binary, Expr, IntLit

Growth = Callable[[Expr], Poly | None]
"""Of a name or field; None where nothing is known."""


def growth(expr: Expr, of: Growth) -> Poly | None:
    """A polynomial without negative coefficients that an integer never passes in size; None where its form shows none. What it is
    of is no less than 1."""
    if isinstance(expr, IntLit):
        return Poly.constant(abs(expr.value))
    match operation(expr):
        case None:
            return of(expr)
        case ("%" | "floor_mod", (_, by)):
            return growth(by, of)
        case ("//" | "floor_div" | "ceil_div", (value, _)) | ("-" | "abs" | "i32" | "i64", (value,)):
            return growth(value, of)
        case ("*", (Binary("//", value, by), same)) if by == same:
            return _joined(Poly.__add__, growth(value, of), growth(by, of))
        case ("+" | "-", (left, right)):
            return _joined(Poly.__add__, growth(left, of), growth(right, of))
        case ("*", (left, right)):
            return _joined(Poly.__mul__, growth(left, of), growth(right, of))
        case ("**", (base, IntLit(power))) if 1 <= power <= 4:
            return reduce(lambda a, b: _joined(Poly.__mul__, a, b), repeat(growth(base, of), power))
        case ("minimum" | "maximum", (left, right)) | ("where", (_, left, right)):
            return _joined(_hull, growth(left, of), growth(right, of))
        case _:
            return None


def dominates(most: Poly, value: Poly) -> bool:
    """Is `most` surely no less than `value`, where what both are of is no less than 1: what `value` has more of a product is made
    up for by what `most` has more of its multiples."""
    difference = most - value
    left = {m: c for m, c in difference.terms if c > 0}
    for monomial, lacking in difference.terms:
        for multiple in [m for m in left if lacking < 0 and removed(m, monomial) is not None]:
            taken = min(left[multiple], -lacking)
            left[multiple] -= taken
            lacking += taken
        if lacking < 0:
            return False
    return True


def _joined(join: Callable[[Poly, Poly], Poly], left: Poly | None, right: Poly | None) -> Poly | None:
    return None if left is None or right is None else join(left, right)


def _hull(left: Poly, right: Poly) -> Poly:
    """The larger of both coefficients, at each product."""
    terms = dict(left.terms)
    terms |= {m: max(c, terms.get(m, 0)) for m, c in right.terms}
    return Poly.of(terms.items())
