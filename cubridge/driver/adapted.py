"""A patched kernel, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.backend.launch.device import KernelText
from cubridge.backend.text.lower import Patched
from cubridge.driver.found import found
from cubridge.driver.report import RULES, Changed, Report
from cubridge.driver.subject import Subject
from cubridge.ir.nodes import Kernel
from cubridge.judge.findings import Findings
from cubridge.passes.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Adapted(Subject):
    """A patched kernel before it is checked. `remarks`: what passes say beside their result. `proposer` of the target and
    `lowered_by`: "rules", or a model. `is_read`: do the rules of lifting read the text as this target? If not, its runs
    alone judge it."""

    target: Kernel
    pipeline: Pipeline
    patched: Patched
    text: KernelText
    remarks: tuple[str, ...]
    proposer: str = RULES
    lowered_by: str = RULES
    is_read: bool = True

    def report(self, findings: Findings) -> Report:
        patched = self.patched
        return Report(
            reference=self.reference.name,
            reference_file=self.reference.path,
            kernel=self.kernel.name,
            arch=self.kernel.text.contract.arch,
            dtype=self.dtype,
            shape=str(self.shape),
            pipeline=self.pipeline.to_text(),
            found=found(self.reference.attention.spec, self.target),
            changed=Changed(patched.regions_changed, patched.lines_added, patched.lines_removed),
            cases=findings.cases,
            mutants=findings.mutants,
            compiled=findings.compiled,
            reached=findings.verdict,
            not_checked=(*self.remarks, *findings.not_checked),
            proposer=self.proposer,
            lowered_by=self.lowered_by,
            parts=findings.parts,
            points=findings.points,
            is_read=self.is_read,
        )
