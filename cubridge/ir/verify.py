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
from cubridge.ir.verify_skips import check_skips
from cubridge.ir.verify_state import check_row_state, check_tile_state
from cubridge.ir.verify_structure import check_fields, check_regions, check_structure, check_traits
from cubridge.ir.verify_waits import check_waits
from cubridge.ir.verify_workers import check_leaders, check_named_barriers, check_registers
from cubridge.ir.workers import Workers

Rule = Callable[[Kernel], Iterable[Diagnostic]]
WorkerRule = Callable[[Workers], Iterable[Diagnostic]]

STRUCTURE_RULES: Final[tuple[Rule, ...]] = (check_structure,)
TYPE_RULES: Final[tuple[Rule, ...]] = (check_traits, check_fields, check_regions, check_schedule, check_body)
FLOW_RULES: Final[tuple[Rule, ...]] = (
    check_tile_state,
    check_row_state,
    check_pipeline,
    check_waits,
    check_fences,
    check_groups,
    check_shared_memory,
    check_counters,
    check_ranges,
    check_skips,
)
WORKER_RULES: Final[tuple[WorkerRule, ...]] = (
    check_barriers,
    check_leaders,
    check_named_barriers,
    check_registers,
    check_keys,
)


def verify(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """Every fault of a kernel that static rules can show, in the order of the text; () if there is none.

    Structure comes first, then types, then the rest: later rules take for granted what earlier ones found in order."""
    for rules in (STRUCTURE_RULES, TYPE_RULES):
        faults = {fault for rule in rules for fault in rule(kernel)}
        if faults:
            return _sorted(faults)
    workers = Workers(kernel)
    faults = {fault for rule in FLOW_RULES for fault in rule(kernel)}
    faults |= {fault for rule in WORKER_RULES for fault in rule(workers)}
    return _sorted(faults)


def _sorted(faults: set[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(faults, key=lambda f: (f.span.file.name, f.span.start, f.code, f.message)))
