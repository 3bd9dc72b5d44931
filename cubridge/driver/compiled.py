"""An adaptation as a PyTorch operator: what `Adaptation.compile()` gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.compile.cache import content_key, default_cache_dir
from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.launch.extras import ExtraArgument
from cubridge.backend.launch.kinds import NumberKind, TensorKind
from cubridge.backend.launch.operator import AttentionOperator, OperatorPlan
from cubridge.backend.launch.varlen import VarlenOperator
from cubridge.backend.ptx.device import PtxDevice
from cubridge.driver.captures import SpecCaptures
from cubridge.driver.reference import means_the_same
from cubridge.driver.saved import Saved
from cubridge.driver.specialise import Specialiser
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.spec import Shape
from cubridge.ir.types import DTYPES
from cubridge.ir.walk import free_names
from cubridge.judge.checker import Checker, approximations
from cubridge.judge.plan import Case, emulator_cases, gpu_cases
from cubridge.judge.readable import check_readable
from cubridge.judge.runners import LaunchRunner
from cubridge.passes.constant_reference import has_constant_reference
from cubridge.verify.ranges import captured_bound
from cubridge.verify.size_limits import launch_preconditions

if TYPE_CHECKING:
    from cubridge.backend.launch.device import Device, LoadedKernel
    from cubridge.backend.launch.operator import Specialise
    from cubridge.backend.launch.runtime import Checked, Launcher
    from cubridge.driver.adapted import Adapted
    from cubridge.frontend.reference.traced import Traced
    from cubridge.ir.spec import AttentionSpec


Cases = Callable[["AttentionSpec", Shape], list[Case]]


def compile_for(adapted: Adapted, device: str) -> AttentionOperator:
    """The operator on "cuda" (the GPU of the tensors of a call) or on "emulator" (this CPU, for tensors on it).
    Errors: CU820 for another name; CU820, exit code 5, where there is no GPU."""
    if device == "cuda":
        find_gpu()
        return compile_adapted(adapted, device=device)
    if device == "emulator":
        emulator = PtxDevice(check=check_readable)
        cases = _emulator_cases
        return compile_adapted(adapted, lambda _: emulator, cases=cases, device=device)
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
    check: bool = True,
    cases: Cases = gpu_cases,
    cache_dir: Path | None = None,
    specialise: bool = True,
    device: str = "",
) -> AttentionOperator:
    """The operator. It is called like the reference; with `check`, each compiled form is judged by `cases` on the device before
    its first result is handed out, once for each content and architecture. With `specialise`, arguments of another kind than
    the adaptation saw are answered by another one, made at the call. `device`: the name by which a saved operator finds its device
    again."""
    traced = adapted.reference.traced
    arguments = extra_arguments(traced)
    fixed = {a.name: a.adapted for a in arguments if a.fixed and isinstance(a.adapted, (bool, int, float))}
    captures = SpecCaptures.of(traced, fixed, captured_bound(adapted.target))
    plan = OperatorPlan(
        text=adapted.text,
        captures=captures,
        arguments=arguments,
        preconditions=launch_preconditions(traced.spec, adapted.target),
        constants=captures.constants(),
        gives_lse=traced.spec.gives_lse,
        inputs=_input_names(traced),
        needs_keys=_lse_reads_captures(traced.spec),
    )
    judge = DeviceCheck(adapted, cases, default_cache_dir() if cache_dir is None else cache_dir) if check else None
    build = partial(
        compile_adapted, device_of=device_of, check=check, cases=cases, cache_dir=cache_dir, specialise=False
    )
    other = Specialiser(adapted, arguments, build) if specialise else None
    return CompiledOperator(plan, device_of, judge, specialise=other, adapted=adapted, device=device)


class CompiledOperator(AttentionOperator):
    """An operator that knows what it was made of, so that it can be saved and copied."""

    def __init__(
        self,
        plan: OperatorPlan,
        device_of: Callable[[torch.device], Device],
        checked: Checked | None,
        *,
        specialise: Specialise | None,
        adapted: Adapted,
        device: str,
    ) -> None:
        super().__init__(plan, device_of, checked, specialise=specialise)
        self.adapted = adapted
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
        return Saved.of(self.adapted, self.device)


def compile_saved(saved: Saved) -> AttentionOperator:
    """The operator that was saved. Errors: those of reading its reference again; CU820, CU846."""
    return compile_for(saved.restore(), saved.device)


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


# ---- the check of the compiled kernel --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """Runs a compiled form against the oracle. What was accepted once is noted in `folder`, by content."""

    adapted: Adapted
    cases: Cases
    folder: Path

    def __call__(self, launcher: Launcher, kernel: LoadedKernel, head_dim: int) -> None:
        """Errors: CU828 with the first problem that the kernel gets wrong; CU824 for an element type in which the reference is
        another."""
        # The bound is derived by autograd, which torch switches off inside an operator: for this thread alone.
        with ThreadPoolExecutor(1) as outside:
            outside.submit(self._judge, launcher, kernel, head_dim).result()

    def _judge(self, launcher: Launcher, kernel: LoadedKernel, head_dim: int) -> None:
        traced = self.adapted.reference.traced
        dtype = next(name for name, d in DTYPES.items() if d == kernel.instantiation.dtype)
        if dtype != self.adapted.dtype and not means_the_same(self.adapted.reference, dtype):
            message = f"in {dtype} the reference computes something else than in {self.adapted.dtype}"
            raise Refused(Diagnostic("CU824", message, help=f'adapt it with dtype="{dtype}"'))
        if dtype == "fp16" and dtype != self.adapted.dtype and has_constant_reference(traced.spec, self.adapted.target):
            message = "the kernel takes no row maximum, and its weights leave the range of fp16"
            raise Refused(Diagnostic("CU824", message, help='adapt the reference with dtype="fp16"'))
        note = self.folder / f"{content_key(kernel.key, traced.spec)}.checked"
        if note.exists():
            return
        checker = Checker(self.adapted.reference.attention, dtype, approximations(self.adapted.target))
        shape = replace(self.adapted.shape, D=head_dim)
        for result in checker.run(LaunchRunner(launcher, "device", runs=2), self.cases(traced.spec, shape)):
            if not result.accepted:
                raise CuError(
                    Diagnostic(
                        "CU828",
                        f"the compiled kernel is wrong at {result.shape}, {result.inputs}: error {result.worst:.3g} times "
                        f"its bound {result.detail}",
                        help="this is a fault of the tool; no result was handed out",
                    ),
                    exit_code=3,
                )
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            note.touch()
        except OSError:
            return  # checked again next time
