"""All stages: a reference and a kernel in, the patched kernel and what was shown of it out. Read `adapt` and `_adapt` first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cubridge.driver.adaptation import Adaptation
from cubridge.driver.adapted import Adapted
from cubridge.driver.backward import adapt_backward
from cubridge.driver.check import check_adapted
from cubridge.driver.kernels import choose_forward
from cubridge.driver.lift_source import lift_chosen
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.model.lift_judge import JudgedLift
from cubridge.driver.model.lower import Lowered
from cubridge.driver.model.stages import ModelStages, stages_of
from cubridge.driver.model.use import Lowering, ModelUse
from cubridge.driver.reference import TracedReference, read_reference
from cubridge.driver.report import RULES
from cubridge.driver.request import Request
from cubridge.driver.sandbox.texts import tools_of
from cubridge.driver.stopwatch import Progress, Stopwatch, silent
from cubridge.driver.subject import Subject
from cubridge.driver.transfer import Transferred, transfer_before_checks
from cubridge.engine.plainly import plainly
from cubridge.engine.threads import one_thread
from cubridge.ir.diagnostics import CuError
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.spec import DEFAULT_SHAPE, Shape
from cubridge.judge.attention import full_attention
from cubridge.judge.long_lengths import check_long_lengths
from cubridge.passes.pipeline import Pipeline

if TYPE_CHECKING:
    import torch

    from cubridge.ir.nodes import Kernel


def adapt(
    reference: Callable[..., object] | Path | str | TracedReference,
    kernel: str | Path = "sm80",
    shape: Shape | Sequence[int] | str | None = None,
    dtype: str | torch.dtype = "bf16",
    *,
    function: str | None = None,
    extra_inputs: Callable[..., object] | None = None,
    pipeline: Pipeline | str | None = None,
    model: ModelUse | None = None,
    grad: bool = False,
    progress: Progress = silent,
) -> Adaptation:
    """Adapt `kernel` ("sm80", "sm90a" or the path of a .cu) to `reference`, a callable or a file, and check the result.

    `grad`: and the kernels of its backward pass, of sm90a. `shape`: example sizes; the result holds for all that meet its
    preconditions. `model`: what proposes the target in place of the rules, unless `pipeline` is given, and writes the text where
    its `lowering` says so. Errors: CuError, with places."""
    request = Request.of(reference, kernel, shape, dtype, function, extra_inputs, pipeline)
    watch = Stopwatch(progress)
    with ThreadPoolExecutor(_WORKERS) as pool, plainly(), one_thread(), stages_of(model) as stages:
        adapted = _adapt(request, stages, watch)
        tools = tools_of(adapted.kernel)
        if stages is not None and adapted.lowered_by != RULES:
            tools = stages.tools
        with watch.stage("check"):
            findings = check_adapted(adapted, pool, tools, watch)
        backward = None
        if grad:
            with watch.stage("backward"):
                backward = adapt_backward(adapted)
    report = replace(adapted.report(findings), backward=backward.report if backward is not None else None)
    return Adaptation(adapted, report, watch.seconds, backward)


_WORKERS: Final = 2


def adapt_unchecked(
    reference: Callable[..., object] | Path | str | TracedReference,
    kernel: str = "sm80",
    shape: Shape | None = None,
    dtype: str = "bf16",
    *,
    function: str | None = None,
    extra_inputs: Callable[..., object] | None = None,
    model: ModelUse | None = None,
) -> Adapted:
    """The patched kernel alone, verified as CuIR, evaluated at points of long problems, and not run: for tools that check it
    elsewhere, such as on a GPU. A reference that was read before, in this dtype, is not read again for another kernel. What a
    model wrote was run all the same, before it was accepted."""
    request = Request.of(reference, kernel, shape, dtype, function, extra_inputs)
    with plainly(), stages_of(model) as stages:
        adapted = _adapt(request, stages, Stopwatch())
        check_long_lengths(adapted.target, adapted.reference.attention.spec)
        return adapted


def _adapt(request: Request, stages: ModelStages | None, watch: Stopwatch) -> Adapted:
    """All stages before the check. `stages`: those that a model does, if there is one."""
    dtype = request.dtype
    with watch.stage("read the kernel"):
        chosen = choose_forward(request.kernel)
        lifted = lift_chosen(chosen, dtype, (request.shape or DEFAULT_SHAPE).D, stages)
        _check_source(lifted.kernel)
    with watch.stage("read the reference"):
        traced = _read(request)
    subject = Subject(chosen, lifted, traced, dtype, request.shape or _fitting_shape(traced))
    made = _made_without_ir(subject, stages, watch) if stages is not None and stages.use.is_without_ir else None
    transferred, lowered, lowered_by = made or _made(subject, request.pipeline, stages, watch)
    is_lifted_by_rules = not isinstance(lifted, JudgedLift)
    return Adapted(
        reference=traced,
        kernel=chosen,
        lifted=lifted,
        target=lowered.kernel,
        pipeline=transferred.pipeline,
        patched=lowered.patched,
        text=chosen.with_text(patched_source(lowered.patched)),
        dtype=dtype,
        shape=subject.shape,
        remarks=(*transferred.remarks, *([] if is_lifted_by_rules else [_LIFTED_BY_MODEL])),
        proposer=transferred.proposer,
        lowered_by=lowered_by,
        is_read=lowered.is_lifted and is_lifted_by_rules,
    )


def _read(request: Request) -> TracedReference:
    reference = request.reference
    if isinstance(reference, TracedReference):
        return reference
    given = Path(reference) if isinstance(reference, str) else reference
    return read_reference(given, request.function, request.shape, request.extra_inputs, request.dtype)


def _fitting_shape(reference: TracedReference) -> Shape:
    """The default sizes, changed as little as the reference asks; where none fit, those that it was traced at."""
    fitting = fitting_shapes(reference.attention.spec, [DEFAULT_SHAPE])
    return next(iter(fitting), reference.traced.shape)


_LIFTED_BY_MODEL: Final = (
    "runs alone show that the text does what its CuIR says: a model read it, and there is no round trip"
)


def _made(
    subject: Subject, pipeline: Pipeline | None, stages: ModelStages | None, watch: Stopwatch
) -> tuple[Transferred, Lowered, str]:
    """The target, the text, and who wrote it."""
    with watch.stage("transfer"):
        transferred = _transfer(subject, pipeline, stages)
    with watch.stage("lower"):
        return transferred, *_lower(subject, transferred.kernel, stages)


def _made_without_ir(subject: Subject, stages: ModelStages, watch: Stopwatch) -> tuple[Transferred, Lowered, str]:
    """As `_made`; the target is the CuIR of the text."""
    name = stages.use.provider.name
    with watch.stage("write"):
        lowered = stages.write(subject)
    return Transferred(lowered.kernel, Pipeline(()), (), name), lowered, name


def _transfer(subject: Subject, pipeline: Pipeline | None, stages: ModelStages | None) -> Transferred:
    """By a pipeline if one is given, else by a model where there is one, else by the rules."""
    if stages is None or pipeline is not None:
        return transfer_before_checks(subject.lifted.kernel, subject.reference.attention.spec, pipeline)
    return stages.transfer(subject)


def _lower(subject: Subject, target: Kernel, stages: ModelStages | None) -> tuple[Lowered, str]:
    """The patch with the CuIR that it says, and who wrote it."""
    lowering = Lowering.RULES if stages is None else stages.use.lowering
    try:
        if lowering is not Lowering.MODEL:
            patched = lower_kernel(subject.kernel, subject.lifted, target, subject.dtype, subject.shape.D)
            return Lowered(patched, target, is_lifted=True), RULES
    except CuError:
        if lowering is Lowering.RULES:
            raise
    assert stages is not None
    return stages.lower(subject, target), stages.use.provider.name


@lru_cache(maxsize=8)
def _check_source(kernel: Kernel) -> None:
    """A source computes full attention at long lengths too. Errors: as `check_long_lengths`."""
    check_long_lengths(kernel, full_attention().spec)
