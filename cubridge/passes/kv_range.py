"""infer-kv-range: the key tiles that a query tile must visit, and those that need no mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cubridge.ir.nodes import Expr, Kernel
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.clauses import Clauses, clauses
from cubridge.passes.exprs import both, operands
from cubridge.passes.key_sequence import with_key_sequence
from cubridge.passes.mask import IN_RANGE
from cubridge.passes.pieces import full, visited
from cubridge.passes.regions import mask_predicate
from cubridge.passes.rows import RowRange


@dataclass(frozen=True, slots=True)
class InferKvRange(Pass):
    """Sharpen the key sequence from the mask.
    rewrite:   kv_range: tiles that no row of the query tile can see are skipped; tiles that all rows see are not masked.
    requires:  mask is `s = where(predicate, s, -inf)`.
    ensures:   soundness: what depends on data, or has no bound in closed form, is visited and masked."""

    name: ClassVar[str] = "infer-kv-range"

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        predicate = mask_predicate(kernel)
        if predicate is None:
            return kernel
        rows = RowRange.of(kernel)
        seen = visible(predicate, rows)
        return with_key_sequence(kernel, visited(seen, rows), full(seen, rows))


def visible(predicate: Expr, rows: RowRange) -> Clauses:
    """The clauses of a mask, without its bound j < Lk, which every piece of keys has anyway."""
    parts = [p for p in operands("&", predicate) if p != IN_RANGE]
    return clauses(both(*parts), rows.facts)
