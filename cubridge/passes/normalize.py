"""The normalizer rewrite: weights, row sums and the final division from expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cubridge.ir.nodes import Expr, Kernel
from cubridge.ir.stable import stable
from cubridge.ir.walk import free_names
from cubridge.passes.base import Pass, PassContext, refusal
from cubridge.passes.coerce import Coercion
from cubridge.passes.finalize import with_finalize
from cubridge.passes.names import resolve
from cubridge.passes.normalizer import Normalizer, default_lse, is_source_softmax
from cubridge.passes.options import RowTerm
from cubridge.passes.shift import with_shift
from cubridge.passes.softmax import softmax_of
from cubridge.passes.weights import with_weights
from cubridge.passes.wide import within_32_bits


@dataclass(frozen=True, slots=True)
class RewriteNormalize(Pass):
    """Replace the normalizer: out = finalize(sum_j weight(x) V_j), with row sums of their own.
    rewrite:   row_probs      -->   s = weight, and each row reduction adds its tile
               row_finalize   -->   o = finalize, lse
               row_state      -->   a value per row for each reduction, and what these need of the source's
    requires:  weight over x (the score) and m (any number per row; weight and its sums then have degree 1 in exp(-m), by exp(x - m)
               and by constants times exp(-m), with which m begins at 0); finalize over acc, m and the rows. A score that is masked
               has weight 0. Without `lse` there is none, unless out = acc / l.
    ensures:   a softmax gives the source kernel back.
    Errors:    CU505 to CU507 for names and types, CU512 for the kernel, CU514 for a normalizer that takes two sweeps; CU515."""

    name: ClassVar[str] = "rewrite-normalize"
    example: ClassVar[str] = 'rewrite-normalize{weight="maximum(x, 0.0)",finalize="acc"}'
    weight: Expr
    finalize: Expr
    rows: tuple[RowTerm, ...] = ()
    lse: Expr | None = None

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        softmax = softmax_of(kernel)
        normalizer = self._resolved(kernel)
        if is_source_softmax(normalizer, kernel):
            return kernel
        changed = with_finalize(with_weights(kernel, softmax, normalizer), softmax, normalizer)
        return within_32_bits(changed, self.weight.span)

    def _resolved(self, kernel: Kernel) -> Normalizer:
        """The expressions in the kernel's names."""
        names = tuple(r.name for r in self.rows)
        types = Coercion(kernel, frozenset(names))

        def number(expr: Expr, known: tuple[str, ...]) -> Expr:
            return stable(types.number(resolve(expr, kernel, known)))

        for expr in (self.weight, *(r.body for r in self.rows)):
            both = free_names(expr) & frozenset(names)
            if both:
                what = f"a weight that reads the row reduction `{min(both)}` needs a second sweep over the keys"
                raise refusal("CU514", what, expr.span)
        per_key = ("x", "m", "i", "j")
        rows = tuple(
            RowTerm(
                r.name,
                r.kind,
                number(r.body, per_key),
                None if r.over is None else types.predicate(resolve(r.over, kernel, ("i", "j"))),
            )
            for r in self.rows
        )
        finalize = number(self.finalize, ("acc", "m", "i", "e", *names))
        lse = None if self.lse is None else number(self.lse, ("m", "i", *names))
        weight = number(self.weight, per_key)
        normalizer = with_shift(Normalizer(weight, rows, finalize, lse), kernel)
        return normalizer if lse is not None else default_lse(normalizer, kernel)
