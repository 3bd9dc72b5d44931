"""The stages of an adaptation that a model does, in one child process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from cubridge.driver.lower import lower_kernel
from cubridge.driver.model.judge import ValueJudge
from cubridge.driver.model.lift import lift_by_model
from cubridge.driver.model.lift_judge import LiftJudge
from cubridge.driver.model.lower import Lowered, lower_by_model
from cubridge.driver.model.policy import check_runs
from cubridge.driver.model.text import TextJudge
from cubridge.driver.model.transfer import transfer_by_model
from cubridge.driver.model.use import Lowering, ModelUse
from cubridge.driver.model.without_ir import write_by_model
from cubridge.driver.sandbox.process import Sandbox
from cubridge.driver.sandbox.texts import SandboxTools
from cubridge.driver.transfer import transfer_before_checks
from cubridge.ir.diagnostics import CuError, Diagnostic, InternalError
from cubridge.ir.tile_shape import dtype_of
from cubridge.judge.plan import value_cases

if TYPE_CHECKING:
    from cubridge.driver.kernels import ChosenKernel
    from cubridge.driver.reference import TracedReference
    from cubridge.driver.subject import Subject
    from cubridge.driver.transfer import Transferred
    from cubridge.frontend.cuda.lift import Lifted
    from cubridge.ir.nodes import Kernel


@dataclass(slots=True)
class ModelStages:
    """Use as a context: its end ends the child processes that are its own."""

    use: ModelUse
    sandbox: Sandbox = field(init=False)
    tools: SandboxTools = field(init=False)

    def __post_init__(self) -> None:
        self.sandbox = self.use.sandbox or Sandbox()
        self.tools = SandboxTools(self.sandbox, is_reply=True)

    def __enter__(self) -> ModelStages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.use.sandbox is None:
            self.sandbox.close()
        self.tools.close()

    def lift(self, kernel: ChosenKernel, dtype: str, head_dim: int, why: Sequence[Diagnostic]) -> Lifted:
        """Errors: as `lift_by_model`; CU725, after what the rules said, where runs alone are not accepted."""
        try:
            check_runs("the rules cannot read this kernel", self.use.accept)
        except CuError as error:
            raise CuError(*why, *error.diagnostics) from None
        judge = LiftJudge(kernel, dtype, head_dim, self.sandbox)
        return lift_by_model(judge, why, self.use.conversation())

    def transfer(self, subject: Subject) -> Transferred:
        """Errors: as `transfer_by_model`."""

        def is_lowered(target: Kernel) -> None:
            _check_rules_lower(subject, target)

        further = is_lowered if self.use.lowering is Lowering.RULES else None
        talk, judge = self.use.conversation(), self._judge(subject)
        return transfer_by_model(subject.lifted.kernel, subject.reference, talk, self.sandbox, judge, further)

    def transfer_ir(self, source: Kernel, reference: TracedReference) -> Transferred:
        """A kernel that has no text here. Errors: as `transfer_by_model`."""
        attention = reference.attention
        shape = replace(reference.traced.shape, D=int(source.constant("HEAD_DIM")))
        judge = ValueJudge(
            self.sandbox, attention, dtype_of(source), value_cases(attention.spec, shape), self.use.accept
        )
        return transfer_by_model(source, reference, self.use.conversation(), self.sandbox, judge)

    def lower(self, subject: Subject, target: Kernel) -> Lowered:
        """Errors: as `lower_by_model`."""
        judge = TextJudge(
            subject.kernel,
            subject.lifted.kernel,
            target,
            self._judge(subject),
            self.tools,
            subject.dtype,
            subject.shape.D,
        )
        return lower_by_model(subject.kernel, subject.lifted, target, self.use.conversation(), judge)

    def write(self, subject: Subject) -> Lowered:
        """The text without CuIR between. It may approximate what the target of the rules does, if they have one. Errors: as
        `write_by_model`."""
        source = subject.lifted.kernel
        try:
            target = transfer_before_checks(source, subject.reference.attention.spec, None).kernel
        except CuError:
            target = source
        judge = TextJudge(
            subject.kernel, source, target, self._judge(subject), self.tools, subject.dtype, subject.shape.D
        )
        talk = self.use.conversation()
        return write_by_model(self.use.approach, subject.kernel, subject.lifted, subject.reference, talk, judge)

    def _judge(self, subject: Subject) -> ValueJudge:
        attention = subject.reference.attention
        cases = value_cases(attention.spec, subject.shape)
        return ValueJudge(self.sandbox, attention, subject.dtype, cases, self.use.accept)


def stages_of(model: ModelUse | None) -> AbstractContextManager[ModelStages | None]:
    """Those of a model, if there is one."""
    return nullcontext() if model is None else ModelStages(model)


def _check_rules_lower(subject: Subject, target: Kernel) -> None:
    """A target that the rules are to lower must be one that they can say. Errors: CU60x; CU722 where their text does not read back
    as the target."""
    try:
        lower_kernel(subject.kernel, subject.lifted, target, subject.dtype, subject.shape.D)
    except InternalError as error:
        message = "the rules of lowering cannot say this target in CUDA"
        raise CuError(Diagnostic("CU722", message, help="write it in the forms of the source kernel")) from error
