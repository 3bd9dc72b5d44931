"""The shapes at which a reference is tried: all sizes distinct first, then with the equalities that a reference may insist on,
then with sizes that its failures name."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from cubridge.ir.spec import DEFAULT_SHAPE, Shape

_MOST: Final = 60
"""Failing at once, an attempt takes some hundredths of a second."""
_LARGEST: Final = 1 << 14


class Attempts:
    """The shapes to try, next ones after each failure. `numbers`: sizes that the reference may insist on, as extents of tensors
    that it keeps and integers of its code."""

    def __init__(self, shape: Shape | None, extents: Iterable[int], numbers: Iterable[int]) -> None:
        self.waiting = deque(attempts(shape, extents))
        self.named: deque[Shape] = deque()
        self.others: deque[Shape] = deque()
        self.known = set(self.waiting)
        self.numbers = tuple(dict.fromkeys(numbers))
        self.messages: set[str] = set()
        self.tried = 0
        self.asked = shape

    def keep_heads(self) -> None:
        """From here on only what has the heads that were asked for."""
        asked = self.asked
        assert asked is not None
        self.waiting = deque(s for s in self.waiting if (s.Hq, s.Hk) == (asked.Hq, asked.Hk))
        self.named.clear()
        self.others.clear()

    def __iter__(self) -> Iterator[Shape]:
        while self.tried < _MOST and (waiting := self.waiting or self.named or self.others):
            self.tried += 1
            yield waiting.popleft()

    def failed(self, shape: Shape, message: str) -> None:
        """A failure that was not met before says what to change: what it names is tried next, other numbers last."""
        if message in self.messages:
            return
        self.messages.add(message)
        named = [int(n) for n in re.findall(r"(?<![\w.-])\d+(?![\w.])", message)]
        names = _sizes_named(message)
        self.named.extendleft(reversed(self._new(shape, named, names)))
        self.others.extend(self._new(shape, self.numbers, names))

    def _new(self, shape: Shape, numbers: Iterable[int], names: frozenset[str]) -> list[Shape]:
        found = [s for n in numbers if 1 < n <= _LARGEST for s in with_size(shape, n, names) if s not in self.known]
        self.known.update(found)
        return list(dict.fromkeys(found))


def _sizes_named(message: str) -> frozenset[str]:
    """Sizes in a failure's message; all where it names none."""
    found = frozenset(re.findall(r"\b(?:B|Hk|G|Lq|Lk|D)\b", message))
    return found or frozenset(("B", "Hk", "G", "Lq", "Lk"))


def with_size(shape: Shape, n: int, names: frozenset[str]) -> Iterator[Shape]:
    """`shape` with one size, or two that may have to be equal, changed to n, or to less than a table of n holds."""
    if names & {"Lq", "Lk"}:
        if n > _LEAST_TABLE:
            yield replace(shape, Lq=n - 2, Lk=n - 1)
        yield from (
            replace(shape, Lk=n),
            replace(shape, Lq=n),
            replace(shape, Lq=3 * n, Lk=5 * n),
            replace(shape, Lq=n, Lk=n),
        )
    if names & {"Hk", "G"}:
        yield from (replace(shape, Hq=n, Hk=n), replace(shape, Hq=n * (shape.Hq // shape.Hk), Hk=n))
        if n <= _MOST_HEADS:
            yield replace(shape, Hq=n * shape.Hk)
        group = next((g for g in (2, 3, 5, 7) if n % g == 0 and n > g), 1)
        yield replace(shape, Hq=n, Hk=n // group)
    if "B" in names:
        yield replace(shape, B=n)
    if "D" in names:
        yield replace(shape, D=n)


_MOST_HEADS: Final = 64
_LEAST_TABLE: Final = 8


def attempts(shape: Shape | None, held: Iterable[int] = ()) -> Iterator[Shape]:
    """Distinct sizes; equal heads; equal lengths; both; then the heads of the given shape, that shape itself, and head counts that
    the reference may insist on because it holds tensors of these extents."""
    base = distinct(shape or DEFAULT_SHAPE)
    tried: list[Shape] = []
    for equal_lengths in (False, True):
        lengths = replace(base, Lk=base.Lq) if equal_lengths else base
        tried += [lengths, replace(lengths, Hq=base.Hk)]
    if shape is not None:
        tried += [replace(s, Hq=shape.Hq, Hk=shape.Hk) for s in (base, replace(base, Lk=base.Lq))]
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
