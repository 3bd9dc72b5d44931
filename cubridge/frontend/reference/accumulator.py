"""The one sum over the keys of v, with its mask, its weight and the head it reads."""

from __future__ import annotations

import math
from typing import Final

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.bounds import nonneg
from cubridge.frontend.reference.algebra.integers import ONE
from cubridge.frontend.reference.algebra.numbers import split_product
from cubridge.frontend.reference.algebra.predicates import TRUE, at_least_zero, conjunction
from cubridge.frontend.reference.algebra.reals import mul, power
from cubridge.frontend.reference.algebra.reduce import reduce, replace, substitute
from cubridge.frontend.reference.algebra.selection import where
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Load,
    Reduce,
    Term,
    arena,
    const,
    index,
    is_const,
    walk,
)
from cubridge.frontend.reference.attention import QKV, Axes, place_of, place_of_index, subscript_text
from cubridge.frontend.reference.printing import text
from cubridge.frontend.reference.refusal import refuse

_LAYOUT: Final = (
    "q is [B, Hq, Lq, D], k and v are [B, Hk, Lk, D]: a caller who has [B, L, H, D] transposes, not the reference"
)


def find_accumulator(out: Term, axes: Axes) -> Reduce:
    sums = [r for r in walk(out) if isinstance(r, Reduce) and "v" in r.reads]
    if not sums and isinstance(out, Const):
        refuse("CU480", "the output is one number everywhere: no row sees a key", arena().here, "check the mask")
    if not sums:
        refuse("CU480", "the output does not come from a sum over the keys of v", place_of(out), "return weights @ v")
    outer = next((r for r in sums if any(isinstance(x, Reduce) and "v" in x.reads for x in walk(r.body))), None)
    if outer is not None:
        refuse(
            "CU480", "the weighted sum of v is reduced again", place_of(outer), "apply what follows outside the kernel"
        )
    if len(sums) > 1:
        refuse(
            "CU480",
            f"{len(sums)} different sums over v: two attentions, or heads, rows or key ranges mixed",
            place_of(sums[0]),
            "an attention kernel computes one weighted sum of v for each row",
        )
    found = sums[0]
    if found.kind != "sum" or found.index.extent is not axes.j.extent:
        what = "summed" if found.kind == "sum" else f"reduced by {found.kind}"
        message = f"v is {what} over {text(found.index.extent)}, not summed over its keys"
        refuse("CU480", message, place_of(found), _LAYOUT if found.index.extent is axes.hk_extent else None)
    return found


def mask_of(accumulator: Reduce, axes: Axes) -> tuple[Term, Term]:
    """(mask, body at key j)."""
    body = substitute(accumulator.body, {accumulator.index.name: axes.j})
    if isinstance(body, Apply) and body.op == "where" and is_const(body.args[2], 0):
        return body.args[0], body.args[1]
    return TRUE, body


def weight_and_head(accumulator: Reduce, body: Term, axes: Axes) -> tuple[Term, Term]:
    """(weight, key head): the factors beside v, and the head that v is read at."""
    number, factors = split_product(body)
    reads = [base for base, exponent in factors if isinstance(base, Load) and base.tensor == "v" and exponent == 1]
    if len(reads) != 1 or any("v" in base.reads for base, _ in factors if base is not reads[0]):
        refuse("CU480", "v enters otherwise than as one factor of the sum over keys", place_of(accumulator))
    batch, head, row, column = reads[0].indices
    if batch is not axes.b or row is not axes.j or column is not axes.e:
        wrong = next(x for x, want in ((batch, axes.b), (row, axes.j), (column, axes.e)) if x is not want)
        refuse(
            "CU481",
            f"v is read at {subscript_text(reads[0])}, not at [b, kv(h), j, e]",
            place_of_index(wrong, reads[0]),
        )
    if not head.free <= {"h"} or head.reads & QKV:
        message = f"v is read at head {text(head)}, which is not a function of the query head"
        refuse("CU481", message, place_of_index(head, reads[0]))
    weight: Term = const(float(number)) if number.denominator == 1 else const(number)
    for base, exponent in factors:
        if base is not reads[0]:
            weight = mul(weight, power(base, exponent))
    return weight, head


# ---- parts of the keys -----------------------------------------------------------------------------------------------


def over_all_keys(term: Term, axes: Axes) -> Term:
    """Reductions over a slice of the keys as reductions over all of them, the others masked."""
    known: dict[Term, Term] = {}
    for part in walk(term):
        if isinstance(part, Reduce) and part.index.extent is not axes.j.extent:
            start = _slice_start(part, axes)
            if start is not None:
                known[part] = _widened(part, start, axes)
    return over_all_keys(replace(term, known), axes) if known else term


def _slice_start(term: Reduce, axes: Axes) -> Term | None:
    """The first key of the slice that the reduction runs over; None where it runs over something else."""
    rows = {
        x.indices[2]
        for x in walk(term.body)
        if isinstance(x, Load) and x.tensor in ("k", "v") and term.index.name in x.indices[2].free
    }
    if len(rows) != 1:
        return None
    start = integers.sub(rows.pop(), term.index)
    stop = integers.add(start, term.index.extent)
    inside = term.index.name not in start.free and nonneg(start) and nonneg(integers.sub(axes.j.extent, stop))
    return start if inside else None


def _widened(term: Reduce, start: Term, axes: Axes) -> Term:
    key = index(f"{term.index.name}w", axes.j.extent)
    offset = integers.sub(key, start)
    inside = conjunction(
        at_least_zero(offset), at_least_zero(integers.sub(integers.sub(term.index.extent, offset), ONE))
    )
    body = substitute(term.body, {term.index.name: offset})
    match term.kind:
        case "any":
            return reduce("any", key, conjunction(inside, body))
        case kind:
            neutral = {"sum": 0.0, "max": -math.inf, "min": math.inf}[kind]
            return reduce(kind, key, where(inside, body, const(neutral)))
