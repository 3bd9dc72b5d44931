"""Integers that 32 bits do not hold: refused where a pass would write them, with a way out."""

from __future__ import annotations

from cubridge.ir.nodes import Kernel
from cubridge.ir.source import Span
from cubridge.passes.base import refusal
from cubridge.verify.ranges import check_region_ranges


def refuse_wide(kernel: Kernel, span: Span) -> None:
    """Errors: CU515 if an integer of a region may leave 32 bits at the largest sizes; `span` is where it was written."""
    fault = next(iter(check_region_ranges(kernel)), None)
    if fault is not None:
        help = "compare quotients, or floats: `i * 1.0 / Lq >= j * 1.0 / Lk`"
        raise refusal("CU515", fault.message, span, help=help)
