"""What a user should know of what was found: alignment and extents of masks, fills, slips, rows without keys."""

from __future__ import annotations

from cubridge.frontend.reference.algebra.terms import Arena
from cubridge.frontend.reference.captures import CaptureTable
from cubridge.frontend.reference.extract import Axes
from cubridge.frontend.reference.lift import Lifter
from cubridge.frontend.reference.normalizer import Normalizer
from cubridge.ir.spec import Remark


def warnings_of(found: Normalizer, axes: Axes, lifter: Lifter, table: CaptureTable, arena: Arena) -> tuple[Remark, ...]:
    warnings: list[Remark] = []
    for span in arena.bit_operations:
        warnings.append(
            Remark(
                "bitwise and of numbers, as the text says: `&` binds tighter than a comparison; add parentheses", span
            )
        )
    for name, span in lifter.writes_arguments.items():
        warnings.append(Remark(f"the reference writes into its argument `{name}`; the adapted operator does not", span))
    return tuple(warnings)
