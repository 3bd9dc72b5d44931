"""Elements of captured tensors that are used as flags: 0 or 1, as a number, less 1, or as 1 minus it."""

from __future__ import annotations

from cubridge.frontend.reference.algebra.numbers import split_product
from cubridge.frontend.reference.algebra.polynomials import terms_of
from cubridge.frontend.reference.algebra.terms import Apply, Const, Load, Term, arena

_INPUTS = frozenset(("q", "k", "v"))


def flag_of(term: Term) -> tuple[Load, int, int] | None:
    """(element, value where it is 1, value where it is 0) of `element`, `element - 1` or `1 - element`."""
    match term:
        case Load():
            return _flag(term, 1, 0)
        case Apply(op="real"):
            terms = terms_of(term.args[0])
            element = next((m[0] for m in terms if len(m) == 1), None)
            times = None if element is None else terms.get((element,))
            constant = terms.get((), 0) if len(terms) == 1 + (() in terms) else None
            return _flag(element, times, constant)
        case Apply(op="add", args=(Const() as constant, part)):
            coefficient, factors = split_product(part)
            element = factors[0][0] if len(factors) == 1 and factors[0][1] == 1 else None
            return _flag(element, int(coefficient), int(constant.value) if abs(constant.value) == 1 else None)
        case _:
            return None


def _flag(element: Term | None, times: int | None, constant: int | None) -> tuple[Load, int, int] | None:
    if (
        not isinstance(element, Load)
        or element.reads & (_INPUTS | arena().no_flags)
        or (times, constant) not in ((1, 0), (1, -1), (-1, 1))
    ):
        return None
    assert times is not None and constant is not None
    return element, times + constant, constant
