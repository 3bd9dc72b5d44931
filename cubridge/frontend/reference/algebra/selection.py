"""`where(condition, a, b)` on integers and reals, and how operations move into it.

Masks are written as fills, additive terms, products with 0 and 1, logarithms of them. All become one outermost `where`
with a constant branch, because an operation moves into a `where` as long as that branch stays constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from cubridge.frontend.reference.algebra.constructors import construct, rebuild
from cubridge.frontend.reference.algebra.polynomials import terms_of
from cubridge.frontend.reference.algebra.predicates import FALSE, conjunction, disjunction, implies, negation, select
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Load,
    Reduce,
    Sort,
    Term,
    apply,
    assume,
    const,
    is_const,
    is_op,
    op_args,
    order,
)

MASK_FILL: Final = -1e8
"""A finite fill at or below this is a mask: its weight underflows to exactly 0 wherever the row sees a key."""

LARGE: Final = 1e6
"""A term with finite constants beyond this could cancel a fill, so no fill absorbs it."""


def is_masking(term: Term) -> bool:
    return isinstance(term, Const) and term.sort is Sort.REAL and term.value <= MASK_FILL


def where(condition: Term, a: Term, b: Term) -> Term:
    if a.sort is Sort.BOOL:
        return select(condition, a, b)
    if isinstance(condition, Const):
        return a if condition.value else b
    if a is b:
        return a
    a, b = _knowing(condition, under(condition, a)), _knowing(negation(condition), under(negation(condition), b))
    if a is b:
        return a
    if isinstance(a, Apply) and a.op == "where" and a.args[2] is b:
        return where(conjunction(condition, a.args[0]), a.args[1], b)
    if isinstance(b, Apply) and b.op == "where" and b.args[1] is a:
        return where(disjunction(condition, b.args[0]), a, b.args[2])
    hoisted = _hoisted(condition, a, b)
    if hoisted is not None:
        return hoisted
    stepped = _step(condition, a, b)
    if stepped is not None:
        return stepped
    if _belongs_first(b, a):
        condition, a, b = negation(condition), b, a
    if isinstance(a, Apply) and a.op == "where" and is_masking(b) and is_masking(a.args[2]):
        deeper = min(_value(b), _value(a.args[2]))
        return where(conjunction(condition, a.args[0]), a.args[1], const(deeper))
    return apply("where", (condition, a, b), a.sort)


def _knowing(condition: Term, branch: Term) -> Term:
    """The branch with the elements of captured tensors that the condition says the value of."""
    for part in op_args(condition, "and"):
        known = _equality(part)
        if known is not None and branch.reads >= known[0].reads:
            branch = _with(branch, *known, {})
    return branch


def _equality(condition: Term) -> tuple[Load, Const] | None:
    """`element == number`."""
    match condition:
        case Apply(op="==0", args=(p,)):
            terms = dict(terms_of(p))
            number = terms.pop((), 0)
            ((monomial, times),) = terms.items() if len(terms) == 1 else (((), 0),)
            if len(monomial) == 1 and abs(times) == 1 and isinstance(monomial[0], Load):
                return monomial[0], const(-number * times)
        case Apply(op="==", args=(Const() as number, Load() as element)):
            return element, number
        case _:
            pass
    return None


def _with(term: Term, element: Load, value: Const, memo: dict[Term, Term]) -> Term:
    """The term with a value for an element; in reductions the same index is another."""
    if term is element:
        return value
    if isinstance(term, Reduce) or not term.reads >= element.reads:
        return term
    if term not in memo:
        children = term.children()
        changed = tuple(_with(c, element, value, memo) for c in children)
        same = all(a is b for a, b in zip(children, changed, strict=True))
        memo[term] = term if same else rebuild(term, changed)
    return memo[term]


def _hoisted(condition: Term, a: Term, b: Term) -> Term | None:
    """A fill or a zero inside one branch becomes the outermost choice."""
    if isinstance(a, Const) or isinstance(b, Const):
        return None
    if is_op(a, "where") and _is_fill(a.children()[2]):
        inner, value, fill = a.children()
        return where(disjunction(negation(condition), inner), where(condition, value, b), fill)
    if is_op(b, "where") and _is_fill(b.children()[2]):
        inner, value, fill = b.children()
        return where(disjunction(condition, inner), where(condition, a, value), fill)
    return None


def _step(condition: Term, a: Term, b: Term) -> Term | None:
    """where(c, b + 2, b) = b + where(c, 2, 0)."""
    if a.sort is not Sort.REAL or isinstance(a, Const) or isinstance(b, Const):
        return None
    step = construct("add", a, construct("mul", const(-1.0), b))
    if not isinstance(step, Const) or not math.isfinite(step.value):
        return None
    return construct("add", b, where(condition, step, const(0.0)))


def _is_fill(term: Term) -> bool:
    return is_masking(term) or (term.sort is Sort.REAL and is_const(term, 0))


def under(condition: Term, branch: Term) -> Term:
    """The branch, knowing that the condition holds there."""
    if not (isinstance(branch, Apply) and branch.selects):
        return branch
    if branch.op != "where":
        args = tuple(under(condition, a) for a in branch.args)
        same = all(a is b for a, b in zip(args, branch.args, strict=True))
        return branch if same else rebuild(branch, args)
    inner, then, otherwise = branch.args
    both = conjunction(condition, inner)
    if both is FALSE:
        return under(condition, otherwise)
    if implies(condition, inner):
        return under(condition, then)
    given = op_args(condition, "and")
    rest = conjunction(*(part for part in op_args(both, "and") if part not in given))
    if len(op_args(rest, "and")) > len(op_args(inner, "and")):
        rest = inner
    then, otherwise = under(both, then), under(conjunction(condition, negation(inner)), otherwise)
    same = rest is inner and then is branch.args[1] and otherwise is branch.args[2]
    return branch if same else where(rest, then, otherwise)


def _belongs_first(b: Term, a: Term) -> bool:
    """Constants go second; of two constants the smaller."""
    if isinstance(a, Const) and isinstance(b, Const):
        return _value(b) > _value(a)
    return isinstance(a, Const)


def _value(term: Term) -> float:
    assert isinstance(term, Const)
    return float(term.value)


def push(function: Callable[..., Term], *args: Term) -> Term | None:
    """`function` applied inside a `where` among its arguments; None where it should stay outside."""
    selections = [a for a in args if isinstance(a, Apply) and a.op == "where"]
    if not selections:
        return None
    condition = _condition_to_push(function, args, selections)
    if condition is None:
        return None
    then, otherwise = (
        function(*(a.children()[branch] if is_op(a, "where") and a.children()[0] is condition else a for a in args))
        for branch in (1, 2)
    )
    return where(condition, then, otherwise)


def _condition_to_push(function: Callable[..., Term], args: tuple[Term, ...], selections: list[Apply]) -> Term | None:
    """A condition on whose constant side the result is constant; any other would make the form depend on the order."""
    constant = all(isinstance(s.args[1], Const) and isinstance(s.args[2], Const) for s in selections)
    if constant and all(isinstance(a, Const) or is_op(a, "where") for a in args):
        return min((s.args[0] for s in selections), key=order)
    for selection in selections:
        for branch in (1, 2):
            if isinstance(selection.args[branch], Const):
                value = function(*(selection.args[branch] if a is selection else a for a in args))
                if isinstance(value, Const):
                    return selection.args[0]
    return None


def absorbs(fill: float, others: list[Term]) -> bool:
    """May `fill + others` be taken as `fill`? Not where a large finite constant among them could cancel it."""
    if fill == -math.inf:
        return True
    if fill > MASK_FILL or any(_may_cancel(o) for o in others):
        return False
    assume("what is added to a fill of -1e8 or less is small beside it")
    return True


def _may_cancel(term: Term) -> bool:
    """Could a constant of a summand bring a fill back? Another fill only takes it further away."""
    match term:
        case Const():
            return has_large_constant(term) and term.value > 0
        case Apply(op="add" | "where"):
            return any(_may_cancel(a) for a in term.args if a.sort is Sort.REAL)
        case _:
            return has_large_constant(term)


def has_large_constant(term: Term) -> bool:
    """A finite constant beyond LARGE outside reductions and subscripts."""
    if isinstance(term, Const):
        return term.sort is Sort.REAL and LARGE < abs(term.value) < math.inf
    return isinstance(term, Apply) and term.sort is Sort.REAL and any(has_large_constant(a) for a in term.args)
