"""The parts of an attention as terms, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cubridge.frontend.reference.algebra.terms import Index, Load, Term, arena, walk
from cubridge.frontend.reference.lift import Computed
from cubridge.frontend.reference.printing import text
from cubridge.ir.source import NOWHERE, Span

QK: Final = frozenset(("q", "k"))
QKV: Final = frozenset(("q", "k", "v"))

S: Final = "s"
"""Symbol of the dot product."""
ACC: Final = "acc"
"""Symbol of the weighted sum of v."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The index variables of the attention, with their extents."""

    b: Index
    h: Index
    i: Index
    j: Index
    e: Index
    d_extent: Term
    hk_extent: Term


RowKind = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class Row:
    """A reduction over keys, as the symbol `name`."""

    name: str
    kind: RowKind
    over: Term
    body: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Attention:
    """The parts found, before the normalizer is brought into its stable form. All are terms over symbols and indices."""

    weight: Term
    mask: Term
    rows: tuple[Row, ...]
    finalize: Term
    lse: Term | None
    kv_head: Term
    computed: tuple[Computed, ...]
    span: Span


def place_of(term: Term) -> Span:
    """Where the term was made; of a term that a rewrite made, where a part of it was."""
    places = arena().places
    for part in walk(term):
        span = places.get(part, NOWHERE)
        if span is not NOWHERE:
            return span
    return NOWHERE


def subscript_text(read: Load) -> str:
    return "[" + ", ".join(map(text, read.indices)) + "]"


def place_of_index(index: Term, read: Load) -> Span:
    """Where the index was made, else where the element was first read."""
    place = arena().places.get(index, NOWHERE)
    return place_of(read) if place is NOWHERE or isinstance(index, Index) else place
