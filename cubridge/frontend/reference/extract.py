"""Finds the attention in the term of one output element.

    out[b, h, i, e] = finalize(sum_j w(s, ..) v[b, kv(h), j, e], row reductions)     s = sum_d q[b, h, i, d] k[b, kv(h), j, d]

The one sum over v is the accumulator. Products of q and k become the symbol `s`, reductions over keys become row symbols;
whatever else touches q, k, v or the output column is refused at the line that made it.
"""

from __future__ import annotations

from cubridge.frontend.reference.accumulator import find_accumulator, mask_of, over_all_keys, weight_and_head
from cubridge.frontend.reference.algebra.terms import Term
from cubridge.frontend.reference.attention import ACC, Attention, Axes, place_of
from cubridge.frontend.reference.parts import PartReader
from cubridge.frontend.reference.refusal import refuse
from cubridge.frontend.reference.row_constants import with_visible_keys, without_row_shifts


def extract(out: Term, lse: Term | None, axes: Axes) -> Attention:
    """Errors: CU480 to CU485, each at the place in the user's code."""
    out = over_all_keys(out, axes)
    lse = None if lse is None else over_all_keys(lse, axes)
    mask, _ = mask_of(find_accumulator(out, axes), axes)
    out = with_visible_keys(out, mask, axes)
    lse = None if lse is None else with_visible_keys(lse, mask, axes)
    out, lse = without_row_shifts(out, lse)
    accumulator = find_accumulator(out, axes)
    mask, body = mask_of(accumulator, axes)
    weight, kv_head = weight_and_head(accumulator, body, axes)
    reader = PartReader(axes, kv_head, accumulator)
    mask, weight = reader.read(mask, axes.j), reader.read(weight, axes.j)
    finalize = reader.read(out, None)
    lse = None if lse is None else reader.read(lse, None)
    if "$" + ACC not in finalize.reads:
        refuse("CU480", "the sum over v cancels out of the output", place_of(out))
    return Attention(
        weight, mask, tuple(reader.rows), finalize, lse, kv_head, tuple(reader.computed), place_of(accumulator)
    )
