"""Exponential weights without a maximum of their own, taken relative to one: exp(x) overflows where exp(x - m) does not."""

from __future__ import annotations

from dataclasses import replace

from cubridge.ir.algebra.hosts import is_positive
from cubridge.ir.nodes import Binary, Call, Expr, Kernel, Name, Node
from cubridge.ir.walk import free_names, map_children
from cubridge.passes.normalizer import SCORE, SHIFT, Normalizer, degree, division, relative
from cubridge.passes.scale import MINUS_ONE, ONE
from cubridge.passes.terms import Algebra, Term, rebuilt


def with_shift(normalizer: Normalizer, kernel: Kernel) -> Normalizer:
    """The same outputs and LSE from weights and sums times exp(-m), where these are exponentials of x and out is their
    quotient: a constant c beside a sum becomes exp(log(c) - m). The same normalizer where that does not apply."""
    algebra = Algebra(kernel)
    found = division(normalizer.finalize, algebra)
    if normalizer.is_shifted or found is None or found.denominator is None:
        return normalizer
    weight = _shifted(normalizer.weight, algebra)
    rows = tuple(replace(r, body=_shifted(r.body, algebra)) for r in normalizer.rows)
    sums = {r.name for r in rows if r.kind == "sum"}
    denominator = _relative_total(found.denominator, sums)
    bodies = (weight, *(r.body for r in rows))
    if denominator is None or len(sums) != len(rows) or any(_degree(b, algebra) != 1 for b in bodies):
        return normalizer
    if any(free_names(x) & sums for x in found.factor.over):
        return normalizer
    factor = rebuilt((replace(found.factor, over=(Name("acc"), *found.factor.over)),))
    lse = None if normalizer.lse is None else _relative_lse(normalizer.lse, sums)
    if normalizer.lse is not None and lse is None:
        return normalizer
    return Normalizer(weight, rows, Binary("/", factor, denominator), lse)


def _degree(expr: Expr, algebra: Algebra) -> int | None:
    return degree(relative(expr, algebra)) if "m" in free_names(expr) else None


def _shifted(expr: Expr, algebra: Algebra) -> Expr:
    """The expression with exp(x - m) for exp(x), at every exponential that grows with x alone."""

    def change(node: Node) -> Node:
        match node:
            case Call("exp", (argument,)) if Term(ONE, (SCORE,)) in algebra.terms(argument):
                return Call("exp", (rebuilt((*algebra.terms(argument), Term(MINUS_ONE, (SHIFT,)))),))
            case _:
                return map_children(node, change)

    result = change(expr)
    assert isinstance(result, Expr)
    return result


def _relative_total(total: Expr, sums: set[str]) -> Expr | None:
    """A denominator times exp(-m); None where it is no sum, or maximum, of row sums and positive constants."""
    match total:
        case Name(name) if name in sums:
            return total
        case Binary("+", left, right) | Call("maximum", (left, right)):
            a, b = _relative_total(left, sums), _relative_total(right, sums)
            if a is None or b is None:
                return None
            return Binary("+", a, b) if isinstance(total, Binary) else Call("maximum", (a, b))
        case _ if is_positive(total):
            return Call("exp", (Binary("-", Call("log", (total,)), SHIFT),))
        case _:
            return None


def _relative_lse(lse: Expr, sums: set[str]) -> Expr | None:
    """log(total) as m + log(total * exp(-m)), at every logarithm; None for another use of a row sum."""
    possible = True

    def change(node: Node) -> Node:
        nonlocal possible
        match node:
            case Call("log", (argument,)) if free_names(argument) & sums:
                inner = _relative_total(argument, sums)
                possible = possible and inner is not None
                return Binary("+", SHIFT, Call("log", (inner or argument,)))
            case Name(name) if name in sums:
                possible = False
                return node
            case _:
                return map_children(node, change)

    result = change(lse)
    return result if possible and isinstance(result, Expr) else None
