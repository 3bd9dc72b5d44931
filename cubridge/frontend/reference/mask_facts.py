"""What a mask says in a user's words: which alignment a causal bound has, how far a window reaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cubridge.frontend.reference.algebra import integers
from cubridge.frontend.reference.algebra.polynomials import coefficient
from cubridge.frontend.reference.algebra.terms import Apply, Const, Index, Term, is_op, op_args, size, sizes_only, walk


@dataclass(frozen=True, slots=True)
class Bound:
    """`right`: j <= i + reach (+ Lk - Lq where `bottom_right`); else j >= i - reach."""

    right: bool
    reach: Term
    bottom_right: bool

    def text(self, reach: str) -> str:
        alignment = "bottom-right" if self.bottom_right else "top-left"
        if self.right and isinstance(self.reach, Const) and self.reach.value == 0:
            return f"causal, {alignment}: row i sees keys up to i{' + Lk - Lq' if self.bottom_right else ''}"
        side = "right" if self.right else "left"
        return f"window, {alignment}: {reach} keys to the {side} of the row's own, inclusive"


def bounds(mask: Term, i: Index, j: Index) -> Iterator[Bound]:
    """Every bound of j against i in the mask."""
    for literal in _literals(mask):
        if not is_op(literal, ">=0"):
            continue
        p = literal.children()[0]
        split_j = coefficient(p, j)
        split_i = coefficient(p, i)
        if split_j is None or split_i is None:
            continue
        (by_j, _), (by_i, _) = split_j, split_i
        if not (isinstance(by_j, Const) and isinstance(by_i, Const) and by_j.value * by_i.value == -1):
            continue
        right = by_j.value == -1  # p = reach + i - j, or reach - i + j
        reach = integers.add(p, integers.mul(const_of(by_j, -1), j), integers.mul(const_of(by_i, -1), i))
        if not sizes_only(reach):
            continue
        shift = integers.sub(size("Lk"), size("Lq"))
        aligned = integers.sub(reach, shift) if right else integers.add(reach, shift)
        bottom_right = not _mentions_lengths(aligned) and _mentions_lengths(reach)
        yield Bound(right, aligned if bottom_right else reach, bottom_right)


def const_of(value: Const, times: int) -> Term:
    return integers.mul(integers.ONE if times == 1 else integers.MINUS_ONE, value)


def _literals(mask: Term) -> Iterator[Term]:
    for part in op_args(mask, "and"):
        for literal in op_args(part, "or"):
            if isinstance(literal, Apply) and literal.op in ("and", "or"):
                yield from _literals(literal)
            else:
                yield literal


def _mentions_lengths(term: Term) -> bool:
    return any(x in (size("Lq"), size("Lk")) for x in walk(term))
