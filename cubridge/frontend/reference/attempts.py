"""The shapes at which a reference is tried: all sizes distinct first, then with the equalities that a reference may insist on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cubridge.ir.spec import DEFAULT_SHAPE, Shape


def attempts(shape: Shape | None, held: Iterable[int] = ()) -> Iterator[Shape]:
    """Distinct sizes; equal heads; equal lengths; both; then the given shape itself, and head counts that the reference
    may insist on because it holds tensors of these extents."""
    base = distinct(shape or DEFAULT_SHAPE)
    tried: list[Shape] = []
    for equal_heads, equal_lengths in ((False, False), (True, False), (False, True), (True, True)):
        candidate = replace(base, Hq=base.Hk) if equal_heads else base
        if equal_lengths:
            candidate = replace(candidate, Lk=candidate.Lq)
        tried.append(candidate)
    if shape is not None:
        tried.append(shape)
    for heads in sorted(set(held)):
        group = next((n for n in (2, 3, 5, 7) if heads % n == 0 and heads > n), 1)
        tried += [replace(base, Hq=heads, Hk=heads // group), replace(base, Hq=heads, Hk=heads)]
    yield from dict.fromkeys(tried)


def distinct(shape: Shape) -> Shape:
    """Like `shape`, with every size above 1 and different from the others, so that none passes for another."""
    heads_k = max(shape.Hk, 2)
    group = shape.Hq // shape.Hk if shape.Hq > shape.Hk else 3
    used: set[int] = set()

    def fresh(n: int) -> int:
        n = max(n, 2)
        while n in used:
            n += 1
        used.add(n)
        return n

    d = fresh(shape.D)
    b = fresh(shape.B)
    hk = fresh(heads_k) if heads_k == shape.Hk else heads_k
    used.add(group * hk)
    lq = fresh(shape.Lq)
    lk = fresh(shape.Lk)
    while lk % group == 0 or lk % hk == 0:  # else a wrong view of the keys may fit by accident
        used.discard(lk)
        lk = fresh(lk + 1)
    return Shape(b, group * hk, hk, lq, lk, d)
