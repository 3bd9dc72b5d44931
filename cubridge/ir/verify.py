"""The static verifier: one function per rule, all faults collected. The engines show what no static rule can."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.nodes import Kernel
from cubridge.ir.verify_barriers import check_barriers
from cubridge.ir.verify_body import check_body, check_schedule
from cubridge.ir.verify_budget import check_counters, check_shared_memory
from cubridge.ir.verify_fences import check_fences, check_groups
from cubridge.ir.verify_keys import check_keys
from cubridge.ir.verify_pipeline import check_pipeline
from cubridge.ir.verify_ranges import check_ranges
from cubridge.ir.verify_state import check_row_state, check_tile_state
from cubridge.ir.verify_structure import check_fields, check_regions, check_structure, check_traits
from cubridge.ir.verify_waits import check_waits
from cubridge.ir.verify_workers import check_leaders, check_named_barriers, check_registers

Rule = Callable[[Kernel], Iterable[Diagnostic]]

STAGES: Final[tuple[tuple[Rule, ...], ...]] = (
    (check_structure,),
    (check_traits, check_fields, check_regions, check_schedule, check_body),
    (
        check_tile_state,
        check_row_state,
        check_pipeline,
        check_barriers,
        check_waits,
        check_fences,
        check_groups,
        check_leaders,
        check_named_barriers,
        check_registers,
        check_shared_memory,
        check_counters,
        check_keys,
        check_ranges,
    ),
)
"""Rules in stages: a later stage takes for granted what an earlier one found in order."""


def verify(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """Every fault of a kernel that static rules can show, in the order of the text; () if there is none."""
    for stage in STAGES:
        faults = {fault for rule in stage for fault in rule(kernel)}
        if faults:
            return tuple(sorted(faults, key=_place))
    return ()


def _place(fault: Diagnostic) -> tuple[str, int, str, str]:
    return fault.span.file.name, fault.span.start, fault.code, fault.message
