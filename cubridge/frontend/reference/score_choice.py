"""Which part of a weight is the score: what the activation is applied to.

exp(y) * g            y, so that the weight is exponential in it
where(c, exp(y), K)   where(c, y, log K): a fill that keeps its weight
sigmoid(y), y * sigmoid(y), max(y, 0) ** 2, log(1 + exp(y))      y
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from cubridge.frontend.reference.algebra.numbers import number, split_product
from cubridge.frontend.reference.algebra.reals import add, exp, log, mul, power
from cubridge.frontend.reference.algebra.reduce import replace
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Sort,
    Symbol,
    Term,
    is_op,
    op_args,
    sizes_only,
    symbol,
    walk,
)
from cubridge.frontend.reference.attention import S
from cubridge.frontend.reference.scaling import Scaling

SCORE: Final = "x"
_S: Final = "$" + S
_ACTIVATIONS: Final = frozenset(("exp", "log", "sigmoid", "erf", "abs", "max", "min", "pow", "power"))


@dataclass(frozen=True, slots=True)
class Score:
    """`term`: the score, in s. `known`: subterms that are a function of it, besides itself."""

    term: Term
    known: tuple[tuple[Term, Term], ...] = ()

    def within(self, term: Term) -> Term | None:
        """`term` with the score as the symbol x; None where s is left."""
        x = symbol(SCORE)
        known = {**dict(self.known), self.term: x}
        for part in walk(term):
            if part not in known and isinstance(part, Apply):
                found = _as_part(part, self.term, x)
                if found is not None:
                    known[part] = found
        found = replace(replace(term, known), known)  # what stands beside a part may hold the score too
        return None if _S in found.reads else found


def choose_score(weight: Term) -> Score:
    """The outermost argument in which the weight is exponential, else the argument of the innermost activation."""
    kept_fill = _of_kept_fill(weight)
    if kept_fill is not None:
        return kept_fill
    valid: list[Score] = []
    for candidate in _arguments(weight):
        score = Score(candidate)
        within = score.within(weight)
        if within is None:
            continue
        if Scaling(symbol(SCORE)).factor(within):
            return score
        valid.append(score)
    if valid:
        return valid[-1]
    if isinstance(weight, Apply) and weight.op not in ("mul", "add", "where"):
        return Score(weight.args[0])
    return Score(symbol(S))


def _of_kept_fill(weight: Term) -> Score | None:
    """A selection between exponentials is the exponential of a selection."""
    if not is_op(weight, "where"):
        return None
    score = log(weight)
    if exp(score) is not weight or any(is_op(t, "log") for t in walk(score)):
        return None
    return Score(score, ((weight, exp(symbol(SCORE))),))


def _arguments(weight: Term) -> Iterator[Term]:
    """Arguments of activations that hold s, outermost first; what lies below other functions is part of a score."""
    seen: set[Term] = set()
    level = [weight]
    while level:
        below: list[Term] = []
        for term in level:
            if term in seen or not isinstance(term, Apply) or _S not in term.reads:
                continue
            seen.add(term)
            if term.op in _ACTIVATIONS:
                yield from (a for a in term.args if _S in a.reads and a.sort is Sort.REAL)
            elif term.op not in ("add", "mul", "where"):
                continue
            below += term.args
        level = below


def _as_part(term: Apply, wanted: Term, new: Symbol) -> Term | None:
    """`wanted` as some of the summands, or of the factors, of a longer sum or product."""
    if term.op == "add" and is_op(wanted, "add"):
        parts = op_args(wanted, "add")
        scale = _common_scale(parts, term.args)
        if scale is not None:
            rest = (mul(number(-scale), p) for p in parts)
            return add(mul(number(scale), new), term, *rest)
    return _quotient(term, wanted, new) if term.op == "mul" and is_op(wanted, "mul") else None


def _common_scale(parts: tuple[Term, ...], summands: tuple[Term, ...]) -> Fraction | None:
    """c where every part times c is among the summands."""
    table = {factors: coefficient for coefficient, factors in map(split_product, summands)}
    scale: Fraction | None = None
    for coefficient, factors in map(split_product, parts):
        here = table.get(factors)
        if here is None or (scale is not None and here / coefficient != scale):
            return None
        scale = here / coefficient
    return scale


def _quotient(term: Term, wanted: Term, new: Symbol) -> Term | None:
    """term = new * rest, where every factor of `wanted` is one of `term`, with its exponent, or a size."""
    coefficient, factors = split_product(term)
    divisor, divisors = split_product(wanted)
    powers = dict(factors)
    for base, exponent in divisors:
        if powers.get(base) == exponent:
            del powers[base]
        elif sizes_only(base):
            powers[base] = powers.get(base, Fraction(0)) - exponent
        else:
            return None
    rest = [power(base, exponent) for base, exponent in powers.items()]
    return mul(mul(number(coefficient / divisor), new), *rest)
