"""Chooses the score inside the weight and brings the normalizer into the form a kernel can run.

The score x is what the outermost non-linear operations of the weight are applied to. A weight with weight(x + t) = exp(c t)
weight(x) is exponential: it is computed as weight(x - m) with any row number m, sums of the same kind with it, and finalize
and LSE get the factors of exp(m) that make up for it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeGuard

from cubridge.frontend.reference.algebra.numbers import number, split_product
from cubridge.frontend.reference.algebra.reals import add, exp, log, mul, power, reciprocal
from cubridge.frontend.reference.algebra.reduce import replace
from cubridge.frontend.reference.algebra.selection import under
from cubridge.frontend.reference.algebra.terms import Const, Sort, Term, is_op, op_args, sizes_only, symbol, walk
from cubridge.frontend.reference.attention import ACC, Attention, Row, S, place_of
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.score_choice import SCORE, Score, choose_score
from cubridge.frontend.reference.shifted import SHIFT, shifted_by_m

_S: Final = "$" + S


@dataclass(frozen=True, slots=True)
class Normalizer:
    """Terms of the spec. `shift`: m may be any number of the row."""

    score: Term
    mask: Term
    weight: Term
    rows: tuple[Row, ...]
    finalize: Term
    lse: Term | None
    shift: bool


def normalize(found: Attention) -> Normalizer:
    """Errors: CU485 where more than one pass over the keys is needed, CU486 where the mask or the weights are out of reach."""
    _check_single_pass(found)
    found, score = _common_score(found)
    weight, rows = _in_score(found.weight, score), tuple(_row_in_score(r, score) for r in found.rows)
    weight, found = _without_sizes(weight, found)
    _check_fills(found.mask, rows)
    shifted = shifted_by_m(weight, rows)
    if shifted is None:
        rows, finalize, lse = _used(rows, found.finalize, found.lse)
        return Normalizer(score.term, found.mask, weight, rows, finalize, lse, False)
    m = symbol(SHIFT)
    like_shift = frozenset((m, *(symbol(r.name) for r in rows if r.kind == "max" and r.body is symbol(SCORE))))
    finalize = _stabilised(shifted.grown(found.finalize), like_shift)
    lse = _default_lse(finalize) if found.lse is None else _stabilised(shifted.grown(found.lse), like_shift)
    kept, finalize, lse = _used(shifted.rows, finalize, lse)
    return Normalizer(score.term, found.mask, shifted.weight, kept, finalize, lse, True)


def _check_single_pass(found: Attention) -> None:
    names = {"$" + r.name for r in found.rows}
    readers = [("the weight", found.weight)] + [(f"row reduction {r.name}", r.body) for r in found.rows]
    for what, term in readers:
        if term.reads & names:
            refuse(
                "CU485",
                f"{what} reads a reduction over the same keys that is not a common shift of the scores: it needs a second pass",
                place_of(term),
                "two softmaxes, or a threshold from the row, need the scores twice; a kernel passes over the keys once",
            )
    for term in (found.mask, *(r.over for r in found.rows)):
        if term.reads & (names | {_S}):
            refuse(
                "CU486",
                "the mask depends on the scores",
                place_of(term),
                "a mask is a function of positions and captures",
            )
    if _S not in found.weight.reads:
        refuse("CU486", "the weights do not depend on q and k", found.span, "that is a plain sum over v")


def _check_fills(mask: Term, rows: tuple[Row, ...]) -> None:
    """Keys that the weights drop and a finite fill leaves in the sums. Errors: CU486 at the fill."""
    for row in rows:
        for part in walk(row.body) if row.over is not mask else ():
            if is_op(part, "where") and any(_is_fill(x) for x in part.children()[1:]):
                fill = next(x for x in part.children()[1:] if _is_fill(x))
                refuse(
                    "CU486",
                    f"the sums count keys that are filled with {float(fill.value):g}, and the weights drop them",
                    place_of(part),
                    "fill with -torch.inf, so that both see the same keys",
                )


def _is_fill(term: Term) -> TypeGuard[Const]:
    return isinstance(term, Const) and term.sort is Sort.REAL and -math.inf < term.value <= NOTABLE_FILL


NOTABLE_FILL: Final = -1e3


# ---- the score -------------------------------------------------------------------------------------------------------


def _common_score(found: Attention) -> tuple[Attention, Score]:
    """The score of the weight. Where the mask has simplified the weight, and a row sum over more keys still has the whole
    score, the weight is written with that: on visible keys the two are equal."""
    score = choose_score(found.weight)
    if all(score.within(r.body) is not None for r in found.rows):
        return found, score
    for row in found.rows:
        seen = under(found.mask, row.body)
        ratio = mul(found.weight, reciprocal(seen))
        if seen is row.body or _S in ratio.reads:
            continue
        whole = dataclasses.replace(found, weight=mul(ratio, row.body))
        score = choose_score(whole.weight)
        if all(score.within(r.body) is not None for r in whole.rows):
            return whole, score
    return found, choose_score(found.weight)


def _in_score(term: Term, score: Score) -> Term:
    found = score.within(term)
    if found is None:
        refuse(
            "CU486", "the score enters in two different forms", place_of(term), "weights and row sums read one score"
        )
    return found


def _row_in_score(row: Row, score: Score) -> Row:
    return Row(row.name, row.kind, row.over, _in_score(row.body, score), row.span)


def _without_sizes(weight: Term, found: Attention) -> tuple[Term, Attention]:
    """Factors of sizes alone belong to the output, not to every weight."""
    number_, factors = split_product(weight)
    sizes = [power(base, exponent) for base, exponent in factors if sizes_only(base)]
    if not sizes or len(sizes) == len(factors):
        return weight, found
    rest = [power(base, exponent) for base, exponent in factors if not sizes_only(base)]
    finalize = replace(found.finalize, {symbol(ACC): mul(symbol(ACC), *sizes)})
    return mul(number(number_), *rest), dataclasses.replace(found, finalize=finalize)


# ---- the shift -------------------------------------------------------------------------------------------------------


def _stabilised(term: Term, like_shift: frozenset[Term]) -> Term:
    """Sums inside powers and logarithms with their largest power of exp(m) taken out, so that nothing overflows. `like_shift`:
    m and the row's own maximum, which is about as large: exp(m - maximum) needs no such care."""
    m = symbol(SHIFT)
    known: dict[Term, Term] = {}
    for t in walk(term):
        if is_op(t, "add") and "$" + SHIFT in t.reads:
            rates = [_rate(part, like_shift) for part in t.children()]
            with_rows = [r for r, part in zip(rates, t.children(), strict=True) if _reads_rows(part)]
            rate = max(with_rows, default=Fraction(0))
            if rate:
                inner = add(*(mul(part, exp(mul(number(-rate), m))) for part in t.children()))
                known[t] = mul(exp(mul(number(rate), m)), inner)
    return replace(term, known) if known else term


def _rate(term: Term, like_shift: frozenset[Term]) -> Fraction:
    """The multiple of numbers like m in the exponential factor of a product."""
    _, factors = split_product(term)
    total = Fraction(0)
    for base, exponent in factors:
        if is_op(base, "exp"):
            for part in op_args(base.children()[0], "add"):
                coefficient, inner = split_product(part)
                if len(inner) == 1 and inner[0][0] in like_shift and inner[0][1] == 1:
                    total += coefficient * exponent
    return total


def _reads_rows(term: Term) -> bool:
    return any(name.startswith("$R") or name == "$" + ACC for name in term.reads)


def _default_lse(finalize: Term) -> Term | None:
    """log of what the output is divided by, in the unit of the scores; None where the output is no mean."""
    coefficient, factors = split_product(finalize)
    rest = [(base, exponent) for base, exponent in factors if base is not symbol(ACC)]
    if coefficient != 1 or len(rest) != 1 or len(factors) != 2 or rest[0][1] != -1:
        return None

    return add(symbol(SHIFT), log(rest[0][0]))


def _used(rows: tuple[Row, ...], finalize: Term, lse: Term | None) -> tuple[tuple[Row, ...], Term, Term | None]:
    """The rows that are read, numbered in order."""
    reads = finalize.reads | (lse.reads if lse is not None else frozenset())
    kept = [r for r in rows if "$" + r.name in reads]
    names: dict[Term, Term] = {symbol(r.name): symbol(f"R{n + 1}") for n, r in enumerate(kept)}
    renamed = tuple(Row(f"R{n + 1}", r.kind, r.over, r.body, r.span) for n, r in enumerate(kept))
    return renamed, replace(finalize, names), None if lse is None else replace(lse, names)
