"""What an adaptation found, changed and checked: one record, rendered as JSON, as Markdown and as a short summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from cubridge.judge.findings import CaseResult, Compiled, MutantResult, Verdict
from cubridge.judge.proof.part import Part, unproved

RULES = "rules"
"""The author of what no model wrote."""


@dataclass(frozen=True, slots=True)
class Found:
    """The attention of the reference, as expressions in text."""

    score: str
    mask: str
    weight: str
    rows: tuple[str, ...]
    finalize: str
    lse: str | None
    kv_head: str
    captures: tuple[str, ...]
    preconditions: tuple[str, ...]
    specialised: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """What the patch touches."""

    regions: tuple[str, ...]
    lines_added: int
    lines_removed: int


@dataclass(frozen=True, slots=True)
class BackwardReport:
    """Of the backward pass: `gradient`, for a person; `changed`, by kernel."""

    gradient: str
    changed: dict[str, Changed]
    cases: tuple[CaseResult, ...]
    mutants: tuple[MutantResult, ...]
    compiled: tuple[Compiled, ...]

    @property
    def accepted(self) -> bool:
        rejected = bool(self.mutants) and all(m.rejected_by for m in self.mutants)
        return bool(self.cases) and all(c.accepted for c in self.cases) and rejected


@dataclass(frozen=True, slots=True)
class Report:
    """`reference_file`: where the reference was read from, None for a live callable; `kernel`: as the user named it; `proposer` of
    the target and `lowered_by`: "rules", or a model. `reached`: the highest level of the checks, whatever they said. `parts`: what
    is proved of each part; `points`: of long problems, at which the rest was tested; `is_read`: is the CuIR of which that is said
    the rules' reading of the text."""

    reference: str
    reference_file: str | None
    kernel: str
    arch: str
    dtype: str
    shape: str
    pipeline: str
    found: Found
    changed: Changed
    cases: tuple[CaseResult, ...]
    mutants: tuple[MutantResult, ...]
    compiled: tuple[Compiled, ...]
    reached: Verdict
    not_checked: tuple[str, ...]
    proposer: str = RULES
    lowered_by: str = RULES
    parts: tuple[Part, ...] = ()
    points: int = 0
    is_read: bool = True
    backward: BackwardReport | None = None

    @property
    def accepted(self) -> bool:
        right = all(c.accepted for c in self.cases) and not any(p.refuted for p in self.parts)
        right = right and (self.backward is None or self.backward.accepted)
        return right and bool(self.mutants) and all(m.rejected_by for m in self.mutants)

    @property
    def verdict(self) -> Verdict:
        return self.reached if self.accepted else Verdict.REJECTED

    @property
    def basis(self) -> str:
        """What the result rests on besides runs."""
        if not self.is_read:
            return "judged by runs alone"
        tested = [p.name for p in unproved(self.parts)]
        return f"proved but for {', '.join(tested)}" if tested else "proved"

    @property
    def authors(self) -> tuple[str, ...]:
        """Who wrote what, where it was not the rules."""
        wrote = (("The target was proposed", self.proposer), ("The text was written", self.lowered_by))
        return tuple(f"{what} by {author}." for what, author in wrote if author != RULES)

    def __str__(self) -> str:
        return summary(self)

    def _repr_markdown_(self) -> str:
        """For notebooks."""
        return to_markdown(self)

    def to_json(self) -> dict[str, object]:
        plain = asdict(self) | {"cases": _plain_cases(self.cases)}
        del plain["backward"]
        if self.backward is not None:
            plain["backward"] = asdict(self.backward) | {"cases": _plain_cases(self.backward.cases)}
        return {
            **plain,
            "verdict": str(self.verdict),
            "accepted": self.accepted,
            "basis": self.basis,
        }


def _plain_cases(cases: tuple[CaseResult, ...]) -> list[dict[str, object]]:
    """Without rows, which are in the view."""
    return [{name: value for name, value in asdict(c).items() if name != "rows"} for c in cases]


def to_markdown(report: Report) -> str:
    """The report as a page."""
    parts = [
        f"# {report.reference} on {report.kernel}",
        f"{report.arch}, {report.dtype}, shape {report.shape} (B, Hq, Hk, Lq, Lk, D). Verdict: **{_verdict(report)}**.",
        "## Found",
        _bullets(_found_lines(report.found)),
        "## Changed",
        _changed_line(report.changed),
        *report.authors,
        f"```\n{report.pipeline}\n```",
        "## Checked",
        _table(
            ("stage", "shape", "inputs", "error / bound", "LSE", "half-precision reference", ""),
            [
                (c.stage, c.shape, c.inputs, _ratio(c.worst), _ratio(c.lse), _ratio(c.reference), _outcome(c))
                for c in report.cases
            ],
        ),
        "Wrong kernels, each of which must be rejected:",
        _table(
            ("mutant", "rejected by", ""), [(m.name, m.rejected_by or "**nobody**", m.detail) for m in report.mutants]
        ),
    ]
    if report.parts:
        rows = [(p.name, p.said(report.points)) for p in report.parts]
        parts += ["For all sizes, in real arithmetic:", _table(("part", ""), rows)]
    if report.compiled:
        parts += ["## Compiled", _compiled_table(report.compiled)]
    if report.backward is not None:
        parts += _backward_parts(report.backward)
    if report.not_checked:
        parts += ["## Not checked here", _bullets(report.not_checked)]
    return "\n\n".join(parts) + "\n"


def _compiled_table(compiled: tuple[Compiled, ...]) -> str:
    rows = [(c.arch, c.macros, str(c.registers), str(c.spill_bytes), str(c.shared_bytes)) for c in compiled]
    return _table(("arch", "macros", "registers", "spill bytes", "shared bytes"), rows)


def _backward_parts(backward: BackwardReport) -> list[str]:
    cases = [(c.stage, c.shape, c.inputs, _ratio(c.worst), _outcome(c)) for c in backward.cases]
    mutants = [(m.name, m.rejected_by or "**nobody**", m.detail) for m in backward.mutants]
    return [
        "## Backward",
        f"```text\n{backward.gradient}```",
        _bullets([f"{name}: {_changed_line(c)}" for name, c in backward.changed.items()]),
        _table(("stage", "shape", "inputs", "error / bound", ""), cases),
        _table(("mutant", "rejected by", ""), mutants),
        _compiled_table(backward.compiled),
    ]


def _backward_lines(backward: BackwardReport) -> list[str]:
    changed = [f"  {name}: {_changed_line(c)}" for name, c in backward.changed.items() if c.regions]
    right, rejected = sum(c.accepted for c in backward.cases), sum(1 for m in backward.mutants if m.rejected_by)
    worst = max(c.worst for c in backward.cases)
    return [
        "backward",
        *(changed or [f"  {_changed_line(Changed((), 0, 0))}"]),
        f"  {right} of {len(backward.cases)} runs within the bound, worst error {_ratio(worst)} of it",
        *(f"    at {c.shape}, {c.inputs}: {c.detail}" for c in backward.cases if not c.accepted),
        f"  wrong passes rejected: {rejected} of {len(backward.mutants)}",
    ]


def summary(report: Report) -> str:
    """A few lines for the terminal."""
    by_stage = {c.stage: [d for d in report.cases if d.stage == c.stage] for c in report.cases}
    lines = [f"{report.reference} -> {report.kernel} ({report.arch}, {report.dtype}): {_verdict(report)}", "found"]
    lines += [f"  {line}" for line in _found_lines(report.found)]
    lines += ["changed", f"  {_changed_line(report.changed)}", *(f"  {line}" for line in report.authors), "checked"]
    for stage, cases in by_stage.items():
        lines.append(f"  {stage}: {_stage_line(cases)}")
        lines += [f"    at {c.shape}, {c.inputs}: {c.detail}" for c in cases if not c.accepted][:1]
    rejected = sum(1 for m in report.mutants if m.rejected_by)
    lines.append(f"  wrong kernels rejected: {rejected} of {len(report.mutants)}")
    lines += [f"  {line}" for line in _proof_lines(report)]
    lines += [
        f"  compiled for {c.arch} ({c.macros}): {c.registers} registers, {c.spill_bytes} bytes spilled"
        for c in report.compiled
    ]
    if report.backward is not None:
        lines += _backward_lines(report.backward)
    if report.not_checked:
        lines += ["not checked here", *(f"  {line}" for line in report.not_checked)]
    return "\n".join(lines)


def _proof_lines(report: Report) -> list[str]:
    """What is proved in one line, and a line for each part that is not."""
    if not report.parts:
        return []
    names = ", ".join(p.name for p in report.parts if p.proved)
    others = (f"{p.name}: {p.said(report.points)}" for p in unproved(report.parts))
    return [f"proved for all sizes: {names or 'nothing'}", *others]


def _verdict(report: Report) -> str:
    """With what it rests on."""
    return f"{report.verdict}, {report.basis}" if report.accepted else report.verdict.upper()


def _found_lines(found: Found) -> list[str]:
    lines = [f"score {found.score}", f"mask {found.mask}", f"weight {found.weight}"]
    lines += [f"row {row}" for row in found.rows]
    lines.append(f"out {found.finalize}")
    if found.lse is not None:
        lines.append(f"lse {found.lse}")
    lines.append(f"key head {found.kv_head}")
    labelled = (
        ("capture", found.captures),
        ("requires", found.preconditions),
        ("specialised", found.specialised),
        ("assumes", found.assumptions),
        ("warning:", found.warnings),
    )
    return lines + [f"{label} {text}" for label, texts in labelled for text in texts]


def _changed_line(changed: Changed) -> str:
    if not changed.regions:
        return "nothing: the kernel computes this already"
    return f"{', '.join(changed.regions)}: {changed.lines_added} lines added, {changed.lines_removed} removed"


def _stage_line(cases: list[CaseResult]) -> str:
    worst = max(c.worst for c in cases)
    accepted = sum(c.accepted for c in cases)
    return f"{accepted} of {len(cases)} runs within the bound, worst error {_ratio(worst)} of it"


def _outcome(case: CaseResult) -> str:
    return case.detail if case.accepted else f"**differs** {case.detail}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 1000 else f"{value:.3g}"


def _bullets(lines: tuple[str, ...] | list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in cells)
