"""The static verifier: one function per rule, all faults collected. The engines show what no static rule can."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.nodes import Kernel
from cubridge.ir.workers import Workers
from cubridge.verify.barriers import check_barriers
from cubridge.verify.body import check_body, check_schedule
from cubridge.verify.budget import check_counters, check_shared_memory
from cubridge.verify.fences import check_fences, check_groups
from cubridge.verify.fills import check_fills
from cubridge.verify.keys import check_keys
from cubridge.verify.pipeline import check_pipeline
from cubridge.verify.ranges import check_body_ranges, check_region_ranges
from cubridge.verify.roles import check_leaders, check_named_barriers, check_registers
from cubridge.verify.skips import check_skips
from cubridge.verify.state import check_row_state, check_score_state, check_tile_state
from cubridge.verify.steps import check_steps
from cubridge.verify.structure import check_fields, check_regions, check_structure, check_traits
from cubridge.verify.waits import check_waits

Rule = Callable[[Kernel], Iterable[Diagnostic]]
WorkerRule = Callable[[Workers], Iterable[Diagnostic]]

STRUCTURE_RULES: Final[tuple[Rule, ...]] = (check_structure,)
FIELD_RULES: Final[tuple[Rule, ...]] = (check_traits, check_fields)

REGION_TYPES: Final[tuple[Rule, ...]] = (check_regions,)
REGION_RULES: Final[tuple[Rule, ...]] = (
    check_tile_state,
    check_row_state,
    check_score_state,
    check_fills,
    check_region_ranges,
    check_skips,
)

BODY_TYPES: Final[tuple[Rule, ...]] = (check_schedule, check_body)
BODY_RULES: Final[tuple[Rule, ...]] = (
    check_pipeline,
    check_steps,
    check_waits,
    check_fences,
    check_groups,
    check_shared_memory,
    check_counters,
    check_body_ranges,
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
    faults = _run(STRUCTURE_RULES, kernel) or _run(FIELD_RULES, kernel)
    if faults:
        return _sorted(faults)
    sound = _has_sound_body(_without_variant(kernel), tuple(type(c.value) for c in kernel.constants))
    faults = _run(REGION_TYPES if sound else REGION_TYPES + BODY_TYPES, kernel)
    if not faults:
        faults = _run(REGION_RULES, kernel) | (set() if sound else _body_faults(kernel))
    return _sorted(faults)


@lru_cache(maxsize=16)
def _has_sound_body(kernel: Kernel, constants: tuple[type, ...]) -> bool:
    """Has what no pass changes no fault. Only the answer is kept: faults have places, which equal kernels need not share.

    `constants` are their types, for the key: 1 equals 1.0."""
    return not (_run(FIELD_RULES, kernel) or _run(BODY_TYPES, kernel) or _body_faults(kernel))


def _without_variant(kernel: Kernel) -> Kernel:
    """What variants have in common: no regions, no state, no parameters of a variant."""
    fixed = tuple(f for f in kernel.params if f.fixed)
    return replace(kernel, params=fixed, tile_state=(), row_state=(), score_state=(), regions=())


def _run(rules: Iterable[Rule], kernel: Kernel) -> set[Diagnostic]:
    return {fault for rule in rules for fault in rule(kernel)}


def _body_faults(kernel: Kernel) -> set[Diagnostic]:
    workers = Workers(kernel)
    return _run(BODY_RULES, kernel) | {fault for rule in WORKER_RULES for fault in rule(workers)}


def _sorted(faults: set[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(faults, key=lambda f: (f.span.file.name, f.span.start, f.code, f.message)))
