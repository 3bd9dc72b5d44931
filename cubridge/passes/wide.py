"""Integers that 32 bits do not hold at the largest sizes: excluded by a parameter that a launch fills, or refused."""

from __future__ import annotations

from dataclasses import replace

from cubridge.ir.algebra.normal import to_expr
from cubridge.ir.nodes import Field, Kernel, Scalar
from cubridge.ir.source import Span
from cubridge.ir.types import DType
from cubridge.passes.base import refusal
from cubridge.passes.regions import free_name
from cubridge.verify.ranges import check_region_ranges
from cubridge.verify.size_limits import WIDER, limit_fields, missing_limits


def within_32_bits(kernel: Kernel, span: Span) -> Kernel:
    """With an integer parameter for each bound that the regions rely on: a launch is refused at sizes where it does not fit.
    Errors: CU515 if an integer of a region has no such bound; `span` is where it was written."""
    for most in missing_limits(kernel):
        name = free_name("largest", {f.name for f in kernel.params})
        item = Field(name, Scalar(DType.I32, to_expr(most)), fixed=False)
        kernel = replace(kernel, params=(*kernel.params, item))
    fault = next(iter(check_region_ranges(kernel)), None)
    if fault is not None:
        raise refusal("CU515", fault.message, span, help=WIDER)
    return kernel


def without_unread(kernel: Kernel, unread: frozenset[str]) -> Kernel:
    """Without parameters that no region reads, and that hold no integer within 32 bits either."""
    kept = {f.name for f in limit_fields(kernel)} if unread else set[str]()
    params = tuple(f for f in kernel.params if f.name not in unread or f.name in kept)
    return kernel if params == kernel.params else replace(kernel, params=params)
