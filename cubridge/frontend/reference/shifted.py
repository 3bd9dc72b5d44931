"""Weight and row sums relative to m: exponential ones at x - m, and others by what stands beside their exponentials."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from cubridge.frontend.reference.algebra import reduce
from cubridge.frontend.reference.algebra.numbers import number
from cubridge.frontend.reference.algebra.reals import add, exp, mul, neg
from cubridge.frontend.reference.algebra.terms import Term, symbol, walk
from cubridge.frontend.reference.attention import ACC, Row
from cubridge.frontend.reference.beside_constants import divided_once, relative_to
from cubridge.frontend.reference.scaling import Scaling
from cubridge.frontend.reference.score_choice import SCORE

SHIFT: Final = "m"


@dataclass(frozen=True, slots=True)
class Shifted:
    """`factors`: what finalize and LSE read for the weighted sum and the row sums. `beside`: do constants stand beside
    exponentials."""

    weight: Term
    rows: tuple[Row, ...]
    factors: dict[Term, Term]
    beside: bool

    def grown(self, term: Term) -> Term:
        """Of finalize or the LSE."""
        changed = reduce.replace(term, self.factors)
        return divided_once(changed, frozenset(n for s in self.factors for n in s.reads)) if self.beside else changed


def shifted_by_m(weight: Term, rows: tuple[Row, ...]) -> Shifted | None:
    """None where weight(x + t) = exp(c t) weight(x) for no c, and where constants beside exponentials are not divided by sums."""
    relative, rate = _at_x_less_m(weight)
    if not rate:
        return None
    factors: dict[Term, Term] = {symbol(ACC): _grown(ACC, rate)}
    changed: list[Row] = []
    for row in rows:
        body, row_rate = _at_x_less_m(row.body) if row.kind == "sum" else (row.body, Fraction(0))
        if row_rate is None and not Scaling(symbol(SCORE)).factor(weight):
            return None
        if row_rate:
            factors[symbol(row.name)] = _grown(row.name, row_rate)
        changed.append(replace(row, body=body))
    unit = exp(neg(symbol(SHIFT)))
    beside = any(part is unit for term in (relative, *(r.body for r in changed)) for part in walk(term))
    return None if beside and len(factors) == 1 else Shifted(relative, tuple(changed), factors, beside)


def _at_x_less_m(term: Term) -> tuple[Term, Fraction | None]:
    """exp(-c m) times the term, by x - m and exp(-m), and c; the term and None where there is no such c."""
    x, m = symbol(SCORE), symbol(SHIFT)
    rate = Scaling(x).factor(term)
    if rate is not None:
        return (reduce.replace(term, {x: add(x, neg(m))}) if rate else term), rate
    beside = relative_to(m, x, term)
    return (term, None) if beside is None else (beside, Fraction(1))


def _grown(name: str, rate: Fraction) -> Term:
    return mul(exp(mul(number(rate), symbol(SHIFT))), symbol(name))
