"""The view of an adaptation: each part of it from the stage that knows it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Final

from cubridge.driver.view.changes import changes, whole_cuir
from cubridge.driver.view.mask import mask_view
from cubridge.driver.view.timeline import timeline_of
from cubridge.driver.view.walked import WORK_TILES, walked
from cubridge.ir.printer import print_expr
from cubridge.ir.source import NOWHERE, SourceFile, Span
from cubridge.show.view import Asked, Form, Formula, Proof, Refusal, Run, View, Work

if TYPE_CHECKING:
    from cubridge.driver.adapted import Adapted
    from cubridge.driver.reference import TracedReference
    from cubridge.driver.report import Report
    from cubridge.judge.findings import CaseResult

_ROWS: Final = 300
"""Points of an error plot; of longer runs, rows next to each other share one."""
_LARGEST: Final = 1e9
"""Errors beyond it are shown as this."""


def view_of(adapted: Adapted, report: Report) -> View:
    """What the page of `adapted` shows. Of a rejected kernel no text is shown, nor how it runs."""
    accepted = report.accepted
    work = walked(adapted)
    return View(
        kernel=report.kernel,
        arch=report.arch,
        dtype=report.dtype,
        shape=report.shape,
        accepted=accepted,
        verdict=str(report.verdict),
        basis=report.basis,
        by=report.authors,
        pipeline=report.pipeline,
        asked=asked(adapted.reference),
        mask=mask_view(adapted, work),
        schedule=tuple(Work(w.b, w.h, w.q_start, len(w.steps)) for w in work[:WORK_TILES]),
        more_work=max(0, len(work) - WORK_TILES),
        timeline=timeline_of(adapted.target) if accepted else None,
        changes=changes(adapted) if accepted else (),
        cuir=whole_cuir(adapted) if accepted else (),
        runs=tuple(map(_run, report.cases)),
        refusals=tuple(Refusal(m.name, m.rejected_by, m.detail) for m in report.mutants),
        proofs=tuple(Proof(p.name, p.proved, p.said(report.points)) for p in report.parts),
        forms=tuple(Form(c.arch, c.macros, c.registers, c.spill_bytes, c.shared_bytes) for c in report.compiled),
        not_checked=report.not_checked,
    )


def asked(reference: TracedReference) -> Asked:
    """The text of the reference, as far as it is its own, beside what was found in it."""
    loaded = reference.traced.reference
    text, first = loaded.file.text, 1
    if reference.path is None and loaded.span is not NOWHERE:  # a live callable: its file may hold much else
        first = loaded.span.location[0]
        text = "".join(inspect.getblock(text.splitlines(keepends=True)[first - 1 :]))
    return Asked(reference.name, reference.path, text, first, tuple(_formulas(reference, loaded.file)))


def _formulas(reference: TracedReference, file: SourceFile) -> Iterator[Formula]:
    spec = reference.attention.spec

    def line(span: Span) -> int:
        known = span is not NOWHERE and span.file.data == file.data and bool(file.data)
        return span.location[0] if known else 0

    yield Formula("score", print_expr(spec.score), line(spec.score.span))
    yield Formula("mask", print_expr(spec.mask), line(spec.mask.span))
    yield Formula("weight", print_expr(spec.weight), line(spec.weight.span))
    for row in spec.rows:
        text = f"{row.name} = {row.kind} over {print_expr(row.over)} of {print_expr(row.body)}"
        yield Formula("row", text, line(row.body.span))
    yield Formula("out", print_expr(spec.finalize), line(spec.finalize.span))
    if spec.lse is not None:
        yield Formula("lse", print_expr(spec.lse), 0)
    yield Formula("key head", print_expr(spec.kv_head), line(spec.kv_head.span))
    for capture in spec.captures:
        extents = ", ".join(map(print_expr, capture.extents))
        yield Formula("capture", f"{capture.name}[{extents}] {capture.dtype}", line(capture.span))
    for label, remarks in (("fixed", spec.specialised), ("assumes", spec.assumptions), ("warning", spec.warnings)):
        for remark in remarks:
            yield Formula(label, remark.message, line(remark.span))
    for condition in spec.preconditions:
        yield Formula("requires", print_expr(condition.condition), line(condition.span))


def _run(case: CaseResult) -> Run:
    per_row = max(1, -(-len(case.rows) // _ROWS))
    groups = (case.rows[x : x + per_row] for x in range(0, len(case.rows), per_row))
    return Run(
        case.stage, case.shape, case.inputs, _number(case.worst), _number(case.lse), _number(case.reference),
        case.accepted, case.detail, tuple(_number(max(g)) for g in groups), per_row,
    )  # fmt: skip


def _number(value: float | None) -> float | None:
    if value is None or not isfinite(value):
        return None
    return float(f"{min(value, _LARGEST):.4g}")
