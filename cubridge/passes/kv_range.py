"""infer-kv-range: the key tiles that a query tile must visit, and those that need no mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cubridge.ir.algebra.exprs import both, operands
from cubridge.ir.diagnostics import InternalError
from cubridge.ir.nodes import Expr, Kernel
from cubridge.ir.printer import print_expr
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.clauses import Clauses, clauses
from cubridge.passes.key_sequence import with_key_sequence
from cubridge.passes.mask import IN_RANGE
from cubridge.passes.pieces import full, visited
from cubridge.passes.regions import mask_predicate
from cubridge.passes.rows import RowRange
from cubridge.passes.tile_check import tile_fault


@dataclass(frozen=True, slots=True)
class InferKvRange(Pass):
    """Sharpen the key sequence from the mask.
    rewrite:   kv_range: tiles that no row of the query tile can see are skipped; tiles that all rows see are not masked.
    requires:  mask is `s = where(predicate, s, -inf)`.
    ensures:   soundness: what depends on data, or has no bound in closed form, is visited and masked. The result is checked tile
               by tile against the three-valued evaluation of the mask."""

    name: ClassVar[str] = "infer-kv-range"
    example: ClassVar[str] = 'rewrite-mask{keep="j <= i"},infer-kv-range'

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        predicate = mask_predicate(kernel)
        if predicate is None:
            return kernel
        rows = RowRange.of(kernel)
        seen = visible(predicate, rows)
        kernel = with_key_sequence(kernel, visited(seen, rows), full(seen, rows))
        fault = tile_fault(kernel, predicate)
        if fault is not None:
            raise InternalError(f"{fault} for mask `{print_expr(predicate)}`")
        return kernel


def visible(predicate: Expr, rows: RowRange) -> Clauses:
    """The clauses of a mask, without its bound j < Lk, which every piece of keys has anyway."""
    parts = [p for p in operands("&", predicate) if p != IN_RANGE]
    return clauses(both(*parts), rows.facts)
