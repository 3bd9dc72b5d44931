"""Reductions over an index, and substitution under them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import nonneg
from cubridge.frontend.reference.algebra.constructors import rebuilt_in_place
from cubridge.frontend.reference.algebra.functions import maximum, minimum
from cubridge.frontend.reference.algebra.numbers import REAL_ONE, REAL_ZERO, number, split_product, to_real
from cubridge.frontend.reference.algebra.polynomials import ONE, ZERO
from cubridge.frontend.reference.algebra.predicates import TRUE, conjunction, negation
from cubridge.frontend.reference.algebra.reals import add, exp, mul, power
from cubridge.frontend.reference.algebra.selection import where
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Index,
    Poly,
    Sort,
    Term,
    index,
    is_const,
    is_op,
    op_args,
    raw_reduce,
)


def reduce(kind: str, over: Index, body: Term) -> Term:
    """sum, max, min, any or all of `body` over the index. What is free of the index leaves; ranges joined by `cat` split."""
    if kind == "all":
        return negation(reduce("any", over, negation(body)))
    if kind == "sum" and body.sort is not Sort.REAL:
        body = to_real(body)
    if is_const(over.extent, 1):
        return substitute(body, {over.name: ZERO})
    border = _border(over, body)
    if border is not None:
        return _split_range(kind, over, body, border)
    match kind:
        case "sum":
            return _sum(over, body)
        case "any":
            return _any(over, body)
        case _:
            return _canonical(kind, over, body) if over.name in body.free else body


def _canonical(kind: str, over: Index, body: Term) -> Term:
    """With the bound index named by the height of the body."""
    bound = index(f"r{body.height}", over.extent)
    return raw_reduce(kind, bound, substitute(body, {over.name: bound}))


def _sum(over: Index, body: Term) -> Term:
    if over.name not in body.free:
        return mul(to_real(over.extent), body)
    if isinstance(body, Apply) and body.op == "where" and is_const(body.args[2], 0):
        condition, value = body.args[0], body.args[1]
        inside, outside = _split_factors(value, over.name)
        return mul(outside, _canonical("sum", over, where(condition, inside, REAL_ZERO)))
    if isinstance(body, Apply) and body.op == "add" and not body.reads & {"q", "k", "v"}:
        return add(*(reduce("sum", over, part) for part in body.args))
    inside, outside = _split_factors(body, over.name)
    if over.name not in inside.free:
        return mul(outside, mul(to_real(over.extent), inside))
    return mul(outside, _canonical("sum", over, inside))


def _split_factors(body: Term, name: str) -> tuple[Term, Term]:
    """(inside, outside): the factors with and without the index; exp(a + b) splits too."""
    coefficient, factors = split_product(body)
    inside: Term = REAL_ONE
    outside: Term = number(coefficient)
    for base, exponent in factors:
        if name not in base.free:
            outside = mul(outside, power(base, exponent))
        elif isinstance(base, Apply) and base.op == "exp":
            moving, fixed = _split_exponent(base.args[0], name)
            inside = mul(inside, exp(moving))
            outside = mul(outside, exp(fixed))
        else:
            inside = mul(inside, power(base, Fraction(exponent)))
    return inside, outside


def _split_exponent(exponent: Term, name: str) -> tuple[Term, Term]:
    moving: Term = REAL_ZERO
    fixed: Term = REAL_ZERO
    for part in op_args(exponent, "add"):
        if name in part.free:
            moving = add(moving, part)
        else:
            fixed = add(fixed, part)
    return moving, fixed


def _any(over: Index, body: Term) -> Term:
    if over.name not in body.free:
        return body
    if isinstance(body, Apply) and body.op == "and":
        outer = conjunction(*(p for p in body.args if over.name not in p.free))
        if outer is not TRUE:
            return conjunction(outer, reduce("any", over, conjunction(*(p for p in body.args if over.name in p.free))))
    for witness in (ZERO, integers.sub(over.extent, ONE)):
        if substitute(body, {over.name: witness}) is TRUE:
            return TRUE
    return _canonical("any", over, body)


def _border(over: Index, body: Term) -> Term | None:
    """n where the body selects by `index < n` alone inside a range made by joining ranges."""
    if not (isinstance(over.extent, Poly) and len(over.extent.monomials) > 1):
        return None
    for condition in _conditions(body):
        if not is_op(condition, ">=0") or condition.free != frozenset((over.name,)):
            continue
        p = condition.children()[0]
        for bound in (integers.add(p, over, ONE), integers.sub(over, p)):  # index < bound, or bound <= index
            proper = over.name not in bound.free and not is_const(bound, 0) and bound is not over.extent
            if proper and nonneg(bound) and nonneg(integers.sub(over.extent, bound)):
                return bound
    return None


def _conditions(body: Term) -> Iterator[Term]:
    seen: set[Term] = set()
    stack = [body]
    while stack:
        term = stack.pop()
        if term in seen or not isinstance(term, Apply):
            continue
        seen.add(term)
        if term.op == "where":
            condition = term.args[0]
            yield from condition.children() if is_op(condition, "and") or is_op(condition, "or") else (condition,)
        stack.extend(term.args)


def _split_range(kind: str, over: Index, body: Term, border: Term) -> Term:
    low = index(over.name + "l", border)
    high = index(over.name + "h", integers.sub(over.extent, border))
    first = reduce(kind, low, substitute(body, {over.name: low}))
    second = reduce(kind, high, substitute(body, {over.name: integers.add(border, high)}))
    match kind:
        case "sum":
            return add(first, second)
        case "max":
            return maximum(first, second)
        case "min":
            return minimum(first, second)
        case _:
            return negation(conjunction(negation(first), negation(second)))


def substitute(term: Term, values: Mapping[str, Term], memo: dict[Term, Term] | None = None) -> Term:
    """The term with index variables replaced by name."""
    memo = {} if memo is None else memo

    def go(x: Term) -> Term:
        if not any(name in x.free for name in values):
            return x
        found = memo.get(x)
        if found is None:
            if isinstance(x, Index) and x.name in values:
                found = values[x.name]
            else:
                children = x.children()
                changed = tuple(go(c) for c in children)
                same = all(a is b for a, b in zip(children, changed, strict=True))
                found = x if same else rebuilt_in_place(x, changed)
            memo[x] = found
        return found

    return go(term)


def renewed(term: Term) -> Term:
    """The term built again from its leaves, with what is known now."""
    children = term.children()
    return rebuilt_in_place(term, tuple(map(renewed, children))) if children else term


def replace(term: Term, values: Mapping[Term, Term], memo: dict[Term, Term] | None = None) -> Term:
    """The term with whole subterms replaced, outermost first."""
    memo = {} if memo is None else memo

    def go(x: Term) -> Term:
        found = memo.get(x)
        if found is None:
            found = values.get(x)
            if found is None:
                children = x.children()
                changed = tuple(go(c) for c in children)
                same = all(a is b for a, b in zip(children, changed, strict=True))
                found = x if same else rebuilt_in_place(x, changed)
            memo[x] = found
        return found

    return go(term)
