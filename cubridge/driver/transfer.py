"""Source CuIR and a spec to target CuIR, by a pipeline that rules propose or a user gives."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.driver.report import RULES
from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Kernel
from cubridge.ir.spec import AttentionSpec
from cubridge.judge.long_lengths import check_long_lengths
from cubridge.judge.well_formed import verify_kernel, verify_statically
from cubridge.passes.base import PassContext
from cubridge.passes.pipeline import Pipeline
from cubridge.passes.propose import propose
from cubridge.passes.runner import run_pipeline
from cubridge.verify.events import structure_difference


@dataclass(frozen=True, slots=True)
class Transferred:
    """`remarks`: what passes say beside their result. `proposer`: "rules", or the model that wrote it; a target that was written
    out has an empty pipeline."""

    kernel: Kernel
    pipeline: Pipeline
    remarks: tuple[str, ...]
    proposer: str = RULES


def transfer(
    source: Kernel,
    spec: AttentionSpec,
    pipeline: Pipeline | None = None,
) -> Transferred:
    """The target that `pipeline`, or the rules' proposal for `spec`, makes of `source`.
    Errors: as `transfer_before_checks`, and what `check_long_lengths` raises."""
    transferred = transfer_before_checks(source, spec, pipeline)
    check_long_lengths(transferred.kernel, spec)
    return transferred


def transfer_before_checks(
    source: Kernel,
    spec: AttentionSpec,
    pipeline: Pipeline | None = None,
) -> Transferred:
    """A target that may compute something else than `spec`, for callers that run it next.
    Errors: CU5xx from passes; CU2xx for a target that does not verify; what `check_structure` raises."""
    pipeline = propose(spec, source) if pipeline is None else pipeline
    remarks: list[str] = []
    target = run_pipeline(source, pipeline, PassContext(remarks.append), verify_statically)
    check_structure(source, target)
    verify_kernel(target)
    return Transferred(target, pipeline, tuple(remarks))


def transfer_unverified(source: Kernel, spec: AttentionSpec) -> Kernel:
    """The rules' target for `spec` with no check between or after passes: for kernels that are wrong on purpose.
    Errors: CU5xx from passes."""
    return run_pipeline(source, propose(spec, source))


def check_structure(source: Kernel, target: Kernel) -> None:
    """Whoever proposed `target`: it may differ from `source` in regions, their state and parameters alone. Errors: CU27x."""
    differences = structure_difference(source, target)
    if differences:
        raise CuError(*differences)
