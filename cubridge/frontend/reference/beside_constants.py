"""Weights in which constants stand beside exponentials of the score, relative to m: exp(x) - 1 is exp(m) (exp(x - m) - exp(-m)).

So they have degree 1 in exp(-m), as exponentials alone do, and no exponential overflows where m is at least x and 0."""

from __future__ import annotations

from typing import Final

from cubridge.frontend.reference.algebra.constructors import rebuilt_in_place
from cubridge.frontend.reference.algebra.numbers import split_product
from cubridge.frontend.reference.algebra.reals import add, exp, mul, neg
from cubridge.frontend.reference.algebra.reduce import replace
from cubridge.frontend.reference.algebra.terms import Apply, Symbol, Term, is_const, is_op, op_args, walk
from cubridge.frontend.reference.scaling import Scaling

_TERM_BY_TERM: Final = frozenset(("add", "max", "abs"))


def relative_to(m: Symbol, x: Symbol, term: Term) -> Term | None:
    """exp(-m) times the term, by exp(x - m) and exp(-m); None where it is not made of exponentials of x and of constants."""
    return _relative(term, Scaling(x), x, m) if "$" + x.name in term.reads else None


def _relative(term: Term, scaling: Scaling, x: Symbol, m: Symbol) -> Term | None:
    if is_const(term, 0):
        return term
    if "$" + x.name not in term.reads:
        return mul(term, exp(neg(m)))
    if scaling.factor(term) == 1:
        return replace(term, {x: add(x, neg(m))})
    if not isinstance(term, Apply):
        return None
    match term.op:
        case op if op in _TERM_BY_TERM:
            kept, changed = (), term.args
        case "where":
            kept, changed = term.args[:1], term.args[1:]
        case "mul":
            changed = tuple(a for a in term.args if "$" + x.name in a.reads)
            kept = tuple(a for a in term.args if a not in changed)
            if len(changed) != 1:
                return None
        case _:
            return None
    parts = [_relative(a, scaling, x, m) for a in changed]
    if any(p is None for p in parts):
        return None
    return rebuilt_in_place(term, (*kept, *(p for p in parts if p is not None)))


def divided_once(term: Term, sums: frozenset[str]) -> Term:
    """Divisors exp(a) R + c as exp(a) (R + c exp(-a)), maxima alike: what exp(a) is of the dividend too is gone. `sums`: names
    of R."""
    known: dict[Term, Term] = {}
    for part in walk(term):
        if (is_op(part, "add") or is_op(part, "max")) and part.reads & sums:
            exponents = {_exponent(p) for p in part.children() if p.reads & sums}
            common = exponents.pop()
            if common is not None and not exponents:
                divided = tuple(mul(p, exp(neg(common))) for p in part.children())
                known[part] = mul(exp(common), rebuilt_in_place(part, divided))
    return replace(term, known) if known else term


def _exponent(term: Term) -> Term | None:
    """a of a product with exp(a)."""
    _, factors = split_product(term)
    return next((op_args(base, "exp")[0] for base, power in factors if is_op(base, "exp") and power == 1), None)
