"""All stages: a reference and a kernel in, the patched kernel and what was shown of it out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from cubridge.driver.check import Subject, check_subject
from cubridge.driver.found import found
from cubridge.driver.kernels import ChosenKernel, choose_kernel
from cubridge.driver.lift import OUTSIDE, lift_verified
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.model.lift_judge import JudgedLift
from cubridge.driver.model.stages import ModelStages
from cubridge.driver.model.stages import Subject as ModelSubject
from cubridge.driver.model.use import Lowering, ModelUse
from cubridge.driver.outputs import FILES
from cubridge.driver.reference import TracedReference, read_reference
from cubridge.driver.report import RULES, Changed, Report, to_markdown
from cubridge.driver.transfer import transfer_before_checks
from cubridge.engine.threads import one_thread
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import replace_files
from cubridge.ir.printer import to_text
from cubridge.ir.spec import DEFAULT_SHAPE, Shape
from cubridge.ir.types import DTYPES
from cubridge.judge.attention import full_attention
from cubridge.judge.findings import Findings
from cubridge.judge.long_lengths import check_long_lengths
from cubridge.judge.problem import fitting_shapes
from cubridge.judge.tools import Here, Tools

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText
    from cubridge.backend.launch.operator import AttentionOperator
    from cubridge.backend.text.lower import Patched
    from cubridge.driver.transfer import Transferred
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.ir.nodes import Kernel
    from cubridge.passes.pipeline import Pipeline

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    pass


@dataclass(slots=True)
class Stopwatch:
    """Seconds of each stage, in order. `progress` is told when one begins."""

    progress: Progress = _silent
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        self.progress(f"{name} ..")
        start = perf_counter()
        yield
        self.seconds[name] = round(perf_counter() - start, 3)


@dataclass(frozen=True, slots=True)
class Adapted:
    """A patched kernel before it is checked. `remarks`: what passes say beside their result. `proposer` of the target and
    `lowered_by`: "rules", or a model."""

    reference: TracedReference
    kernel: ChosenKernel
    lifted: Lifted
    target: Kernel
    pipeline: Pipeline
    patched: Patched
    text: KernelText
    dtype: str
    shape: Shape
    remarks: tuple[str, ...]
    proposer: str = RULES
    lowered_by: str = RULES

    @property
    def subject(self) -> Subject:
        """What there is to check."""
        attention = self.reference.attention
        return Subject(attention, self.kernel, self.lifted, self.target, self.text, self.dtype, self.shape)


@dataclass(frozen=True, slots=True, repr=False)
class Adaptation:
    """What the user holds. `compile()` gives a PyTorch operator on a machine with a GPU."""

    adapted: Adapted
    report: Report
    seconds: dict[str, float]

    def __repr__(self) -> str:
        return (
            f"Adaptation({self.report.reference} -> {self.report.kernel}, {self.report.dtype}: {self.report.verdict})"
        )

    @property
    def source_ir(self) -> Kernel:
        return self.adapted.lifted.kernel

    @property
    def target_ir(self) -> Kernel:
        return self.adapted.target

    @property
    def pipeline(self) -> Pipeline:
        return self.adapted.pipeline

    @property
    def patch(self) -> str:
        """A unified diff of the kernel text."""
        return self.adapted.patched.patch.decode("utf-8", errors="replace")

    @property
    def cuda(self) -> str:
        """The patched kernel text."""
        return self.adapted.patched.text.decode("utf-8", errors="replace")

    def compile(self, device: str = "cuda") -> AttentionOperator:
        """A PyTorch operator with the reference's arguments, for tensors on a GPU ("cuda"), or for small ones on this CPU,
        where the kernel text is emulated ("emulator"). Each compiled form is checked on the device before its first result.
        Errors: CU844, exit code 3, for a kernel that its checks rejected; CU820, exit code 5, where there is no GPU; what a call
        raises is in `backend.launch.operator`."""
        from cubridge.driver.compiled import compile_for

        if not self.report.accepted:
            message = "this kernel failed its checks: `report` says where"
            raise CuError(Diagnostic("CU844", message), exit_code=3)
        return compile_for(self.adapted, device)

    def files(self) -> dict[str, bytes]:
        """What `cuirc adapt` writes, by name; all but timings.json are the same for the same input. Of a kernel that a check
        rejects, the report alone."""
        report = {
            "report.json": json.dumps(self.report.to_json(), indent=1) + "\n",
            "report.md": to_markdown(self.report),
            "timings.json": json.dumps(self.seconds, indent=1) + "\n",
        }
        if not self.report.accepted:
            return {name: text.encode() for name, text in report.items()}
        result = {
            "source.cuir": to_text(self.source_ir),
            "target.cuir": to_text(self.target_ir),
            "pipeline.toml": self.pipeline.to_toml(),
        }
        texts = {name: text.encode() for name, text in (result | report).items()}
        return {"kernel.cu": self.adapted.patched.text, "kernel.patch": self.adapted.patched.patch} | texts

    def write(self, folder: Path) -> None:
        """Write `files()` into a folder that is there, all or none; others of an earlier result go, for this report is not theirs.
        Errors: OSError."""
        files = self.files()
        replace_files(folder, files, [name for name in FILES if name not in files])


def adapt(
    reference: Callable[..., object] | Path | str,
    kernel: str = "sm80",
    shape: Shape | None = None,
    dtype: str = "bf16",
    *,
    function: str | None = None,
    extra_inputs: Callable[..., object] | None = None,
    pipeline: Pipeline | None = None,
    model: ModelUse | None = None,
    progress: Progress = _silent,
) -> Adaptation:
    """Adapt `kernel` ("sm80", "sm90a" or the path of a .cu) to `reference`, a callable or a file, and check the result.

    `shape`: example sizes; the result holds for all that meet its preconditions. `model`: what proposes the target in place of
    the rules, unless `pipeline` is given, and writes the text where its `lowering` says so. Errors: CuError, with places."""
    request = _Request(reference, kernel, shape, dtype, function, extra_inputs, pipeline)
    watch = Stopwatch(progress)
    with ThreadPoolExecutor(_WORKERS) as pool, one_thread(), _stages(model) as stages:
        adapted = _adapt(request, stages, watch)
        tools: Tools = Here() if stages is None or adapted.lowered_by == RULES else stages.tools
        with watch.stage("check"):
            findings = check_subject(adapted.subject, pool, tools)
    return Adaptation(adapted, make_report(adapted, findings), watch.seconds)


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
    request = _Request(reference, kernel, shape, dtype, function, extra_inputs)
    with _stages(model) as stages:
        adapted = _adapt(request, stages, Stopwatch())
        check_long_lengths(adapted.target, adapted.reference.attention.spec)
        return adapted


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for. `shape`: example sizes; None takes some that fit the reference. `pipeline`: None has one proposed."""

    reference: Callable[..., object] | Path | str | TracedReference
    kernel: str
    shape: Shape | None
    dtype: str
    function: str | None
    extra_inputs: Callable[..., object] | None
    pipeline: Pipeline | None = None


def _adapt(request: _Request, stages: ModelStages | None, watch: Stopwatch) -> Adapted:
    """All stages before the check. `stages`: those that a model does, if there is one."""
    dtype = request.dtype
    _check_dtype(dtype)
    with watch.stage("read the kernel"):
        chosen = choose_kernel(request.kernel)
        lifted = _lift(chosen, dtype, (request.shape or DEFAULT_SHAPE).D, stages)
        _check_source(lifted.kernel)
    with watch.stage("read the reference"):
        traced = _read(request)
    subject = ModelSubject(chosen, lifted, traced, dtype, request.shape or _fitting_shape(traced))
    with watch.stage("transfer"):
        transferred = _transfer(subject, request.pipeline, stages)
    with watch.stage("lower"):
        patched, target, lowered_by = _lower(subject, transferred.kernel, stages)
    return Adapted(
        reference=traced,
        kernel=chosen,
        lifted=lifted,
        target=target,
        pipeline=transferred.pipeline,
        patched=patched,
        text=chosen.with_text(patched_source(patched)),
        dtype=dtype,
        shape=subject.shape,
        remarks=(*transferred.remarks, *([_LIFTED_BY_MODEL] if isinstance(lifted, JudgedLift) else [])),
        proposer=transferred.proposer,
        lowered_by=lowered_by,
    )


def _check_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        help = "one of " + ", ".join(f'"{name}"' for name in DTYPES)
        raise CuError(Diagnostic("CU809", f"`{dtype}` is no element type of the kernels", help=help))


def _read(request: _Request) -> TracedReference:
    reference = request.reference
    if isinstance(reference, TracedReference):
        return reference
    given = Path(reference) if isinstance(reference, (str, os.PathLike)) else reference
    return read_reference(given, request.function, request.shape, request.extra_inputs, request.dtype)


def _fitting_shape(reference: TracedReference) -> Shape:
    """The default sizes, changed as little as the reference asks; where none fit, those that it was traced at."""
    fitting = fitting_shapes(reference.attention.spec, [DEFAULT_SHAPE])
    return next(iter(fitting), reference.traced.shape)


def _stages(model: ModelUse | None) -> AbstractContextManager[ModelStages | None]:
    return nullcontext() if model is None else ModelStages(model)


_LIFTED_BY_MODEL: Final = (
    "runs alone show that the text does what its CuIR says: a model read it, and there is no round trip"
)


def lift(kernel: str, dtype: str, head_dim: int, model: ModelUse | None = None) -> Lifted:
    """The CuIR of a kernel. Errors: as `lift_verified`; with a model for what is outside the rules, as `lift_by_model`."""
    with _stages(model) as stages:
        return _lift(choose_kernel(kernel), dtype, head_dim, stages)


def _lift(kernel: ChosenKernel, dtype: str, head_dim: int, stages: ModelStages | None) -> Lifted:
    """By the rules, from beside the text, or by a model where there is one and the text is outside the vocabulary of the rules."""
    try:
        return lift_verified(kernel, dtype, head_dim)
    except CuError as error:
        if stages is None or not any(d.code in OUTSIDE for d in error.diagnostics):
            raise
        return stages.lift(kernel, dtype, head_dim, error.diagnostics)


def _transfer(subject: ModelSubject, pipeline: Pipeline | None, stages: ModelStages | None) -> Transferred:
    """By a pipeline if one is given, else by a model where there is one, else by the rules."""
    if stages is None or pipeline is not None:
        return transfer_before_checks(subject.lifted.kernel, subject.reference.attention.spec, pipeline)
    return stages.transfer(subject)


def _lower(subject: ModelSubject, target: Kernel, stages: ModelStages | None) -> tuple[Patched, Kernel, str]:
    """The patch, the CuIR that it says, and who wrote it."""
    lowering = Lowering.RULES if stages is None else stages.use.lowering
    try:
        if lowering is not Lowering.MODEL:
            patched = lower_kernel(subject.kernel, subject.lifted, target, subject.dtype, subject.shape.D)
            return patched, target, RULES
    except CuError:
        if lowering is Lowering.RULES:
            raise
    assert stages is not None
    lowered = stages.lower(subject, target)
    return lowered.patched, lowered.kernel, stages.use.provider.name


@lru_cache(maxsize=8)
def _check_source(kernel: Kernel) -> None:
    """A source computes full attention at long lengths too. Errors: as `check_long_lengths`."""
    check_long_lengths(kernel, full_attention().spec)


def make_report(adapted: Adapted, findings: Findings) -> Report:
    patched = adapted.patched
    return Report(
        reference=adapted.reference.name,
        reference_file=adapted.reference.path,
        kernel=adapted.kernel.name,
        arch=adapted.kernel.text.contract.arch,
        dtype=adapted.dtype,
        shape=str(adapted.shape),
        pipeline=adapted.pipeline.to_text(),
        found=found(adapted.reference.attention.spec, adapted.target),
        changed=Changed(patched.regions_changed, patched.lines_added, patched.lines_removed),
        cases=findings.cases,
        mutants=findings.mutants,
        compiled=findings.compiled,
        reached=findings.verdict,
        not_checked=(*adapted.remarks, *findings.not_checked),
        proposer=adapted.proposer,
        lowered_by=adapted.lowered_by,
    )
