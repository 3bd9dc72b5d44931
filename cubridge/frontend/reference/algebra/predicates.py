"""Predicates: `p >= 0` and `p == 0` over integers, comparisons of reals, boolean elements, under and, or, not.

Absolute values, minima, maxima and integer selections are split, implied and contradictory terms drop, so that band, triangle,
clip and chunk spellings of one mask become one term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import nonneg, positive
from cubridge.frontend.reference.algebra.integers import MINUS_ONE, ONE
from cubridge.frontend.reference.algebra.polynomials import from_terms, leading_coefficient, terms_of
from cubridge.frontend.reference.algebra.terms import Apply, Const, Sort, Term, apply, arena, const, is_op, order

TRUE: Final = const(True)
FALSE: Final = const(False)


def at_least_zero(p: Term) -> Term:
    """p >= 0."""
    split = _split_atom(p, at_least_zero)
    if split is not None:
        return split
    if nonneg(p):
        return TRUE
    if nonneg(integers.sub(MINUS_ONE, p)):
        return FALSE
    p = _reduced(p)
    undivided = _undivided(p)
    return apply(">=0", (p,), Sort.BOOL) if undivided is None else at_least_zero(undivided)


def _undivided(p: Term) -> Term | None:
    """a // n >= c as a >= c * n, and c >= a // n as c * n + n > a, for a number c."""
    terms = terms_of(p)
    constant = const(terms.pop((), 0))
    if len(terms) != 1:
        return None
    ((monomial, sign),) = terms.items()
    if len(monomial) != 1 or sign not in (1, -1) or not is_op(monomial[0], "//"):
        return None
    a, n = monomial[0].children()
    if not positive(n):
        return None
    scaled = integers.mul(constant, n)
    if sign > 0:
        return integers.add(a, scaled)
    return integers.sub(integers.sub(integers.add(scaled, n), a), ONE)


def _reduced(p: Term) -> Term:
    """p divided by the common factor of its coefficients, the constant rounded down."""
    terms = terms_of(p)
    common = math.gcd(*(c for monomial, c in terms.items() if monomial))
    return p if common < 2 else from_terms({monomial: c // common for monomial, c in terms.items()})


def _split_atom(p: Term, rebuilt: Callable[[Term], Term]) -> Term | None:
    """p >= 0 where p holds `c * min(x, ..)` and the like, as a junction over the arguments."""
    terms = terms_of(p)
    for monomial, c in terms.items():
        if len(monomial) != 1 or not isinstance(monomial[0], Apply):
            continue
        atom = monomial[0]
        rest = from_terms({m: k for m, k in terms.items() if m != monomial})
        sides = [rebuilt(integers.add(rest, integers.mul(const(c), x))) for x in _alternatives(atom)]
        match atom.op:
            case "iabs" | "imax":
                return (disjunction if c > 0 else conjunction)(*sides)
            case "imin":
                return (conjunction if c > 0 else disjunction)(*sides)
            case "where":
                return select(atom.args[0], sides[0], sides[1])
            case _:
                continue
    return None


def _alternatives(atom: Apply) -> tuple[Term, ...]:
    match atom.op:
        case "iabs":
            return atom.args[0], integers.neg(atom.args[0])
        case "imin" | "imax":
            return atom.args
        case "where":
            return atom.args[1:]
        case _:
            return ()


def is_zero(p: Term) -> Term:
    """p == 0."""
    if isinstance(p, Const):
        return const(int(p.value) == 0)
    if nonneg(integers.sub(p, ONE)) or nonneg(integers.sub(MINUS_ONE, p)):
        return FALSE
    terms = terms_of(p)
    common = math.gcd(*(c for monomial, c in terms.items() if monomial))
    if terms.get((), 0) % common:
        return FALSE
    terms = {monomial: c // common for monomial, c in terms.items()}
    for monomial, c in terms.items():
        if len(monomial) == 1 and is_op(monomial[0], "where"):
            condition, *branches = monomial[0].children()
            rest = from_terms({m: k for m, k in terms.items() if m != monomial})
            first, second = (is_zero(integers.add(rest, integers.mul(const(c), x))) for x in branches)
            return select(condition, first, second)
    p = from_terms(terms)
    return apply("==0", (p if leading_coefficient(p) > 0 else integers.neg(p),), Sort.BOOL)


def negation(a: Term) -> Term:
    memo = arena().negations
    found = memo.get(a)
    if found is None:
        found = memo[a] = _negation(a)
    return found


def _negation(a: Term) -> Term:
    if isinstance(a, Const):
        return const(not a.value)
    if isinstance(a, Apply):
        match a.op:
            case "not":
                return a.args[0]
            case ">=0":
                return at_least_zero(integers.sub(MINUS_ONE, a.args[0]))
            case "and":
                return disjunction(*map(negation, a.args))
            case "or":
                return conjunction(*map(negation, a.args))
            case _:
                pass
    return apply("not", (a,), Sort.BOOL)


def implies(a: Term, b: Term) -> bool:
    """Does a make b true? Sound, incomplete."""
    if a is b or b is TRUE or a is FALSE:
        return True
    memo = arena().implications
    found = memo.get((a, b))
    if found is None:
        found = memo[a, b] = _implies(a, b)
    return found


def _implies(a: Term, b: Term) -> bool:
    if isinstance(a, Apply) and a.op == "or":
        return all(implies(x, b) for x in a.args)
    if isinstance(b, Apply) and b.op == "and":
        return all(implies(a, x) for x in b.args)
    if isinstance(a, Apply) and a.op == "and" and any(implies(x, b) for x in a.args):
        return True
    if isinstance(b, Apply) and b.op == "or" and any(implies(a, x) for x in b.args):
        return True
    if not (isinstance(a, Apply) and isinstance(b, Apply)):
        return False
    match a.op, b.op:
        case ">=0", ">=0":
            return nonneg(integers.sub(b.args[0], a.args[0]))
        case "==0", ">=0":
            return nonneg(integers.sub(b.args[0], a.args[0])) or nonneg(integers.add(b.args[0], a.args[0]))
        case ">=0", "not":
            return _excludes(a, b.args[0])
        case _:
            return False


def _excludes(bound: Apply, equal: Term) -> bool:
    """p >= 0 makes q == 0 false: q or -q is at least p + 1 somewhere above."""
    if not (isinstance(equal, Apply) and equal.op == "==0"):
        return False
    p, q = bound.args[0], equal.args[0]
    return any(nonneg(integers.sub(integers.sub(side, p), ONE)) for side in (q, integers.neg(q)))


def conjunction(*parts: Term) -> Term:
    return _junction("and", parts)


def disjunction(*parts: Term) -> Term:
    return _junction("or", parts)


def _junction(op: str, parts: tuple[Term, ...]) -> Term:
    unit, zero = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    flat: list[Term] = []
    for part in parts:
        flat += part.args if isinstance(part, Apply) and part.op == op else (part,)
    flat = [x for x in dict.fromkeys(flat) if x is not unit]
    if zero in flat:
        return zero
    memo = arena().junctions
    key = (op, *flat)
    found = memo.get(key)
    if found is None:
        found = memo[key] = _simplified(op, flat, unit, zero)
    return found


SIMPLIFIED_PARTS: Final = 16
"""Longer junctions keep their parts as they are: simplification compares every pair."""


def _simplified(op: str, flat: list[Term], unit: Term, zero: Term) -> Term:
    if len(flat) > SIMPLIFIED_PARTS:
        return apply(op, tuple(sorted(flat, key=order)), Sort.BOOL)
    present = set(flat)
    if any(negation(x) in present for x in flat):
        return zero
    kept = _without_redundant(op, flat)
    if _clash(op, kept):
        return zero
    absorbed = _absorbed(op, kept)
    if absorbed is not None:
        return absorbed
    if not kept:
        return unit
    return kept[0] if len(kept) == 1 else apply(op, tuple(sorted(kept, key=order)), Sort.BOOL)


def _without_redundant(op: str, parts: list[Term]) -> list[Term]:
    kept: list[Term] = []
    for at, x in enumerate(parts):
        others = kept + parts[at + 1 :]
        if not any(implies(o, x) if op == "and" else implies(x, o) for o in others):
            kept.append(x)
    return kept


def _clash(op: str, parts: list[Term]) -> bool:
    """Two bounds that leave nothing (and), or that leave nothing out (or)."""
    bounds = [x.args[0] for x in parts if isinstance(x, Apply) and x.op == ">=0"]
    for at, p in enumerate(bounds):
        for q in bounds[:at]:
            total = integers.add(p, q)
            if nonneg(integers.sub(MINUS_ONE, total)) if op == "and" else nonneg(integers.add(total, ONE)):
                return True
    return False


def _absorbed(op: str, parts: list[Term]) -> Term | None:
    """a or (not a and X) = a or X, and its dual; None where nothing goes."""
    inner = "or" if op == "and" else "and"
    for at, x in enumerate(parts):
        if not (isinstance(x, Apply) and x.op == inner):
            continue
        rest = parts[:at] + parts[at + 1 :]
        gone = [c for c in x.args if any(_fixed(op, y, c) for y in rest)]
        if gone:
            left = _junction(inner, tuple(c for c in x.args if c not in gone))
            return _junction(op, (*rest, left))
    return None


def _fixed(op: str, given: Term, part: Term) -> bool:
    """Beside `given`, `part` is the unit of the inner junction."""
    return implies(given, negation(part)) if op == "and" else implies(negation(given), part)


def select(condition: Term, a: Term, b: Term) -> Term:
    """a where the condition holds, else b; all boolean."""
    if isinstance(condition, Const):
        return a if condition.value else b
    if a is b:
        return a
    return disjunction(conjunction(condition, a), conjunction(negation(condition), b))
