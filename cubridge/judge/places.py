"""Where a kernel that computes the wrong thing goes wrong: a statement, or the region whose result differs first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from cubridge.engine.values.launch import Launch
from cubridge.ir.diagnostics import CuError, Note
from cubridge.ir.source import NOWHERE
from cubridge.ir.walk import walk
from cubridge.judge.blame import blame
from cubridge.judge.long_lengths import long_fault
from cubridge.judge.runners import LAUNCH_CONSTANTS, deals_unequal_work

if TYPE_CHECKING:
    from cubridge.ir.nodes import Kernel
    from cubridge.ir.source import Span
    from cubridge.ir.spec import AttentionSpec
    from cubridge.judge.bound import Judgement
    from cubridge.judge.problem import Problem

_REGIONS: Final = {"kv_range": "key_sequence", "normalizer": "row_finalize"}
"""Where the parts that `blame` names stand, if they are no region of CuIR."""


def wrong_place(kernel: Kernel, spec: AttentionSpec, problem: Problem, judgement: Judgement) -> tuple[Span, Note]:
    """The likeliest place of the fault that `judgement` of a run on `problem` shows, and what is wrong there. Single points in fp64
    tell the schedule, the key sequence and the mask apart from the rest; the scores of the first wrong row, scores from what
    comes after them."""
    try:
        fault = long_fault(kernel, spec)
    except CuError:
        fault = None  # it has no value at some long size; the run says enough
    if fault is not None and fault.span is not NOWHERE and not _is_of_scores(fault.span, kernel):
        return fault.span, Note(fault.message, fault.span)
    part, message = _part(kernel, spec, problem, judgement)
    if part == "score" and fault is not None:
        return fault.span, Note(fault.message, fault.span)
    span = kernel.region(part).span
    return span, Note(message, span)


def _is_of_scores(span: Span, kernel: Kernel) -> bool:
    """Points blame whatever makes a weight too large on the scores."""
    return any(span == node.span for part in (*kernel.params, kernel.region("score")) for node in walk(part))


def _part(kernel: Kernel, spec: AttentionSpec, problem: Problem, judgement: Judgement) -> tuple[str, str]:
    """A region, by the row of the largest error."""
    if not math.isfinite(judgement.value):
        return "row_update", "some number leaves its range"
    part, message = blamed_part(kernel, spec, problem, judgement.where)
    if judgement.worst <= 1.0 and part == "normalizer":
        return "row_finalize", "the output is right"
    return _REGIONS.get(part, part), message


def blamed_part(kernel: Kernel, spec: AttentionSpec, problem: Problem, where: tuple[int, ...]) -> tuple[str, str]:
    """`blame` of the row of the output element `where`, in the launch of a check."""
    launch = Launch(
        problem.shape,
        problem.captures,
        LAUNCH_CONSTANTS,
        want_lse=problem.lse is not None,
        counters=deals_unequal_work(kernel),
    )
    b, h, i = where[:3]
    found = blame(kernel, spec, (problem.q, problem.k, problem.v), launch, (b, h, i))
    return found.part, found.message
