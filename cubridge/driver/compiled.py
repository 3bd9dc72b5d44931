"""An adaptation as a PyTorch operator: what `Adaptation.compile()` gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.compile.cache import default_cache_dir
from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.launch.extras import ExtraArgument
from cubridge.backend.launch.kinds import NumberKind, TensorKind
from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.launch.operator_plan import BackwardPlan, OperatorPlan
from cubridge.backend.launch.varlen import VarlenOperator
from cubridge.backend.ptx.device import PtxDevice
from cubridge.driver.backward import Lowered, lower_backward
from cubridge.driver.captures import SpecCaptures
from cubridge.driver.device_check import Cases, DeviceCheck, PassCheck
from cubridge.driver.saved import Saved
from cubridge.driver.specialise import Specialiser
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.spec import Shape
from cubridge.ir.walk import free_names
from cubridge.judge.plan import Case, emulated_gradient_cases, emulator_cases, gpu_cases, gradient_cases
from cubridge.judge.readable import check_readable
from cubridge.verify.ranges import captured_bound
from cubridge.verify.size_limits import launch_preconditions

if TYPE_CHECKING:
    from cubridge.backend.launch.device import Device
    from cubridge.backend.launch.operator import Specialise
    from cubridge.driver.adapted import Adapted
    from cubridge.frontend.reference.traced import Traced
    from cubridge.ir.spec import AttentionSpec, Precondition

PassCases = Callable[["AttentionSpec", int], list[Case]]


def compile_for(adapted: Adapted, device: str, backward: Lowered | None = None) -> AttentionOperator:
    """The operator on "cuda" (the GPU of the tensors of a call) or on "emulator" (this CPU, for tensors on it); with its
    `backward` pass it trains. Errors: CU820 for another name; CU820, exit code 5, where there is no GPU."""
    if device == "cuda":
        find_gpu()
        return compile_adapted(adapted, backward=backward, device=device)
    if device == "emulator":
        emulator = PtxDevice(check=check_readable)
        return compile_adapted(
            adapted,
            lambda _: emulator,
            backward=backward,
            cases=_emulator_cases,
            pass_cases=emulated_gradient_cases,
            device=device,
        )
    raise CuError(Diagnostic("CU820", f"`{device}` is no device that kernels run on", help='"cuda" or "emulator"'))


BATCHED: Final = "batched"
VARLEN: Final = "varlen"


def in_layout(operator: AttentionOperator, layout: str) -> AttentionOperator | VarlenOperator:
    """Errors: CU111 for a layout that there is not."""
    if layout not in (BATCHED, VARLEN):
        help_ = f'"{BATCHED}" for [B, H, L, D], "{VARLEN}" for [T, H, D]'
        raise CuError(Diagnostic("CU111", f"`{layout}` is no layout", help=help_), exit_code=2)
    return operator if layout == BATCHED else VarlenOperator(operator)


def _emulator_cases(spec: AttentionSpec, shape: Shape) -> list[Case]:
    return emulator_cases(spec, shape.D)


def compile_adapted(
    adapted: Adapted,
    device_of: Callable[[torch.device], Device] = find_gpu,
    *,
    backward: Lowered | None = None,
    check: bool = True,
    cases: Cases = gpu_cases,
    pass_cases: PassCases = gradient_cases,
    cache_dir: Path | None = None,
    specialise: bool = True,
    device: str = "",
) -> AttentionOperator:
    """The operator. It is called like the reference; with `check`, each compiled form is judged by `cases` on the device before
    its first result is handed out, and of the `backward` pass by `pass_cases`, once for each content and architecture. With
    `specialise`, arguments of another kind than the adaptation saw are answered by another one, made at the call. `device`: the
    name by which a saved operator finds its device again."""
    plan = _plan(adapted, backward)
    folder = default_cache_dir() if cache_dir is None else cache_dir
    judge = DeviceCheck(adapted, cases, folder) if check else None
    judge_pass = PassCheck(adapted, backward, pass_cases, folder) if check and backward is not None else None

    def build(other: Adapted) -> AttentionOperator:
        return compile_adapted(
            other, device_of, backward=_backward_of(other) if backward is not None else None, check=check, cases=cases,
            pass_cases=pass_cases, cache_dir=cache_dir, specialise=False,
        )  # fmt: skip

    return CompiledOperator(
        plan,
        device_of,
        (judge, judge_pass),
        specialise=Specialiser(adapted, plan.arguments, build) if specialise else None,
        adapted=adapted,
        backward=backward,
        device=device,
    )


def _plan(adapted: Adapted, backward: Lowered | None) -> OperatorPlan:
    traced = adapted.reference.traced
    arguments = extra_arguments(traced)
    fixed = {a.name: a.adapted for a in arguments if a.fixed and isinstance(a.adapted, (bool, int, float))}
    kernels = [adapted.target] if backward is None else [adapted.target, backward.targets.pairs]
    captures = SpecCaptures.of(traced, fixed, min(map(captured_bound, kernels)))
    preconditions = launch_preconditions(traced.spec, adapted.target)
    return OperatorPlan(
        text=adapted.text,
        captures=captures,
        arguments=arguments,
        preconditions=preconditions,
        constants=captures.constants(),
        gives_lse=traced.spec.gives_lse,
        inputs=_input_names(traced),
        needs_keys=_lse_reads_captures(traced.spec),
        backward=None if backward is None else _backward_plan(traced.spec, backward, preconditions),
    )


def _backward_plan(spec: AttentionSpec, backward: Lowered, known: tuple[Precondition, ...]) -> BackwardPlan:
    """`known`: the preconditions of the forward kernel."""
    conditions = {p.condition for p in known}
    own = launch_preconditions(spec, backward.targets.pairs)
    return BackwardPlan(backward.texts, spec.lse is not None, tuple(p for p in own if p.condition not in conditions))


def _backward_of(adapted: Adapted) -> Lowered | None:
    """None for an attention whose gradient the kernels cannot say; inputs that require one are refused then."""
    try:
        return lower_backward(adapted)
    except Refused:
        return None


class CompiledOperator(AttentionOperator):
    """An operator that knows what it was made of, so that it can be saved and copied."""

    def __init__(
        self,
        plan: OperatorPlan,
        device_of: Callable[[torch.device], Device],
        checks: tuple[DeviceCheck | None, PassCheck | None],
        *,
        specialise: Specialise | None,
        adapted: Adapted,
        backward: Lowered | None,
        device: str,
    ) -> None:
        checked, checked_pass = checks
        super().__init__(plan, device_of, checked, specialise=specialise, checked_pass=checked_pass)
        self.adapted = adapted
        self.backward = backward
        self.device = device

    def __repr__(self) -> str:
        adapted = self.adapted
        return f"CompiledOperator({adapted.reference.name} -> {adapted.kernel.name}, {adapted.dtype})"

    def __reduce__(self) -> tuple[Callable[[Saved], AttentionOperator], tuple[Saved]]:
        """Errors: CU846 for an operator that another process could not make again."""
        saved = self._saved()
        saved.check_savable()
        return compile_saved, (saved,)

    def __deepcopy__(self, memo: dict[int, object]) -> AttentionOperator:
        return compile_saved(self._saved().with_copied_reference(memo))

    def _saved(self) -> Saved:
        if not self.device:
            message = "an operator on a device without a name cannot be saved or copied"
            raise CuError(Diagnostic("CU846", message, help="make it with `Adaptation.compile`"))
        return Saved.of(self.adapted, self.backward, self.device)


def compile_saved(saved: Saved) -> AttentionOperator:
    """The operator that was saved. Errors: those of reading its reference again; CU820, CU846."""
    adapted, backward = saved.restore()
    return compile_for(adapted, saved.device, backward)


# ---- arguments -------------------------------------------------------------------------------------------------------


def _input_names(traced: Traced) -> tuple[str, ...]:
    """What the reference calls q, k, v."""
    names = tuple(traced.reference.signature().parameters)[:3]
    return names if len(names) == 3 else ("q", "k", "v")


def _lse_reads_captures(spec: AttentionSpec) -> bool:
    return (
        spec.lse is not None and spec.gives_lse and not free_names(spec.lse).isdisjoint(c.name for c in spec.captures)
    )


def extra_arguments(traced: Traced) -> tuple[ExtraArgument, ...]:
    """The reference's parameters after q, k, v. Fixed are those that the trace saw as plain Python values."""
    function = traced.reference.function
    entry = function.forward if isinstance(function, torch.nn.Module) else function
    parameters = list(inspect.signature(entry).parameters.values())[3:]
    given = traced.extra(traced.shape)
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    known = {p.name for p in named}
    extras = [_argument(traced, p.name, p.default, given) for p in named]
    return (*extras, *(_argument(traced, n, inspect.Parameter.empty, given) for n in given if n not in known))


def _argument(traced: Traced, name: str, default: object, given: Mapping[str, object]) -> ExtraArgument:
    recording = traced.assembled.lifter.recording
    if name in recording.inputs:
        kind = TensorKind(recording.inputs[name].dtype, traced.extents(name))
        return ExtraArgument(name, default, kind)
    if name in recording.scalars and name not in recording.fixed:
        return ExtraArgument(name, default, NumberKind(type(recording.scalars[name])))
    return ExtraArgument(name, default, fixed=True, adapted=given.get(name, default))
