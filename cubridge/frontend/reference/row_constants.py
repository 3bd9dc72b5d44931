"""What does not matter to a row: whether it sees keys at all, and constants inside its exponentials."""

from __future__ import annotations

from cubridge.frontend.reference.algebra.numbers import number, split_product
from cubridge.frontend.reference.algebra.predicates import TRUE, implies
from cubridge.frontend.reference.algebra.reals import exp, mul
from cubridge.frontend.reference.algebra.reduce import reduce, replace, substitute
from cubridge.frontend.reference.algebra.terms import Apply, Reduce, Symbol, Term, const, symbol, walk
from cubridge.frontend.reference.attention import QK, Axes
from cubridge.frontend.reference.scaling import Scaling


def with_visible_keys(term: Term, mask: Term, axes: Axes) -> Term:
    """The term for rows that see a key: rows that see none give 0 whatever the reference does."""
    known: dict[Term, Term] = {}
    for part in walk(term):
        if not (isinstance(part, Reduce) and part.kind == "any" and part.index.extent is axes.j.extent):
            continue
        if implies(mask, substitute(part.body, {part.index.name: axes.j})):
            known[part] = TRUE
    return replace(term, known) if known else term


def without_row_shifts(out: Term, lse: Term | None) -> tuple[Term, Term | None]:
    """Sets to 0 each row constant inside an exponential that provably does not change the results, and takes out of sums what
    changes them by a factor."""
    probe = symbol("t")
    refused: set[Term] = set()
    while True:
        candidate = next((c for c in _shift_candidates(out, lse) if c not in refused), None)
        if candidate is None:
            return out, lse
        scaling = Scaling(probe)
        free_of_it = scaling.factor(replace(out, {candidate: probe})) == 0
        if free_of_it and lse is not None:
            free_of_it = scaling.addend(replace(lse, {candidate: probe})) == 0
        if free_of_it:
            zero = {candidate: const(0.0)}
            out, lse = replace(out, zero), None if lse is None else replace(lse, zero)
            refused.clear()  # what is left of a nest of shifts may now be shown
        else:
            refused.add(candidate)
            out, lse = _taken_out(out, candidate), None if lse is None else _taken_out(lse, candidate)


def _taken_out(term: Term, constant: Term) -> Term:
    """With each sum over keys that answers to the constant by a factor as that factor times the sum without it."""
    probe = symbol("t")
    scaling = Scaling(probe)
    known: dict[Term, Term] = {}
    for part in walk(term):
        if isinstance(part, Reduce) and part.kind == "sum":
            factor = scaling.factor(replace(part.body, {constant: probe}))
            if factor:
                without = reduce(part.kind, part.index, replace(part.body, {constant: const(0.0)}))
                known[part] = mul(exp(mul(number(factor), constant)), without)
    return replace(term, known) if known else term


def _shift_candidates(*terms: Term | None) -> list[Term]:
    """Row constants computed from scores that stand as summands of exponents, outermost first."""
    found: dict[Term, None] = {}
    for term in terms:
        for part in walk(term) if term is not None else ():
            if not (isinstance(part, Apply) and part.op == "exp"):
                continue
            exponent = part.args[0]
            for summand in exponent.args if isinstance(exponent, Apply) and exponent.op == "add" else (exponent,):
                _, factors = split_product(summand)
                if len(factors) == 1 and factors[0][1] == 1 and _is_row_statistic(factors[0][0]):
                    found[factors[0][0]] = None
    return list(found)


def _is_row_statistic(term: Term) -> bool:
    """Reads scores only below reductions, and no index of a key or column."""
    return bool(term.reads & QK) and term.free <= {"b", "h", "i"} and not isinstance(term, Symbol)
