"""A traced tensor as its shape and a function from indices to a term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from cubridge.frontend.reference.algebra.polynomials import ZERO
from cubridge.frontend.reference.algebra.terms import Sort, Term, arena, is_const
from cubridge.ir.source import NOWHERE, Span

Shape = tuple[Term, ...]


@dataclass(eq=False, slots=True)
class Value:
    """`element(*indices)` is the term at one place; `reads` names the inputs and constants it depends on."""

    shape: Shape
    sort: Sort
    element: Callable[..., Term]
    reads: frozenset[str] = frozenset()
    span: Span = NOWHERE
    memo: dict[tuple[Term, ...], Term] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def at(self, *indices: Term) -> Term:
        found = self.memo.get(indices)
        if found is None:
            current = arena()
            before = current.here
            if self.span is not NOWHERE:
                current.here = self.span
            try:
                found = self.memo[indices] = self.element(*indices)
            finally:
                current.here = before
        return found

    def broadcast(self, indices: tuple[Term, ...], shape: Shape) -> Term:
        """The element that a result of `shape` reads at `indices`."""
        skip = len(indices) - self.rank
        return self.at(
            *(
                ZERO if is_const(extent, 1) and not is_const(shape[skip + axis], 1) else indices[skip + axis]
                for axis, extent in enumerate(self.shape)
            )
        )


def sort_of(dtype: torch.dtype) -> Sort:
    """Complex numbers have no sort; a call that reads them has no form."""
    if dtype.is_floating_point or dtype.is_complex:
        return Sort.REAL
    return Sort.BOOL if dtype == torch.bool else Sort.INT
