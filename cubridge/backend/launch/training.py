"""Calls that autograd records: the forward kernel hands on what the backward pass reads, and that gives gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from cubridge.backend.launch.arguments import check_preconditions, dtype_of
from cubridge.backend.launch.backward import BackwardLauncher, InputGradients, PassInputs, like
from cubridge.backend.launch.call_plan import call_form
from cubridge.backend.launch.calls import Calls, Run
from cubridge.backend.launch.device import Device
from cubridge.backend.launch.kinds import OtherKindError
from cubridge.backend.launch.operator_plan import BackwardPlan, OperatorPlan
from cubridge.backend.launch.prepare import Preparer
from cubridge.backend.launch.recorded import record
from cubridge.backend.launch.registered import needs_gradient, register_training
from cubridge.backend.launch.runtime import MAX_PLANS, Launcher
from cubridge.ir.diagnostics import Diagnostic, Refused
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from cubridge.backend.launch.prepared import Inputs, Values

CheckedPass = Callable[[BackwardLauncher, DType, int], None]
"""Judges a form of a backward pass, its element type and head dim, before its first result. Raises CuError to refuse it."""
Other = Callable[["Inputs", "Values", OtherKindError], "tuple[Training | None, Callable[[Values], Values]]"]
"""What trains with arguments of another kind, and from the values of a call to those that it is given."""
_Pass = Callable[[PassInputs, "Values"], InputGradients]


class Training:
    """`name`: of its operators in PyTorch. `launcher_of`: of the forward kernel."""

    def __init__(
        self,
        name: str,
        plan: OperatorPlan,
        backward: BackwardPlan,
        launcher_of: Callable[[torch.device], Launcher],
        device_of: Callable[[torch.device], Device],
        other: Other,
        checked: CheckedPass | None,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._backward = backward
        self._launcher_of = launcher_of
        self._device_of = device_of
        self._other = other
        self._checked = checked
        self._say = say
        self._calls = Calls(plan, backward.saved, launcher_of, self._run_by_other, self._make_ready)
        self._launchers: dict[torch.device, BackwardLauncher] = {}
        self._ready: set[tuple[torch.device, DType, int]] = set()
        self._passes: dict[tuple[object, ...], _Pass] = {}
        self.operator, self._backward_operator = register_training(name, self, len(backward.saved))

    # ---- forward -----------------------------------------------------------------------------------------------------

    def record(self, inputs: Inputs, given: Values) -> list[Tensor]:
        """As `operator` gives, past the dispatcher."""
        return record(self, self._backward_operator, inputs, given)

    def run(self, inputs: Inputs, given: Values) -> list[Tensor]:
        """What the forward pass hands on. `given`: as for `Calls`. Errors: besides those of a call, of the kernels of the backward
        pass; CU847."""
        _check_order()
        return self._calls(inputs, given)

    def shapes(self, inputs: Inputs) -> list[Tensor]:
        return self._plan.shapes(inputs, self._backward.saved)

    def _run_by_other(self, inputs: Inputs, given: Values, error: OtherKindError) -> Run:
        other, values = self._train(inputs, given, error)
        return lambda inputs, given: other.run(inputs, values(given))

    def _train(
        self, inputs: Inputs, given: Values, error: OtherKindError
    ) -> tuple[Training, Callable[[Values], Values]]:
        other, values = self._other(inputs, given, error)
        if other is None:
            what = f"{error.diagnostics[0].message}; with such arguments the reference has no backward pass"
            raise needs_gradient(what, "detach q, k and v, or call it under torch.no_grad()")
        return other, values

    def _make_ready(self, inputs: Inputs, sizes: Mapping[str, int]) -> None:
        """Compile the backward pass, and have it judged, before the first output is handed out. Errors: CU823 for sizes that it
        does not take; as `load` and `CheckedPass`."""
        check_preconditions(self._backward.preconditions, sizes)
        device, dtype = inputs[0].device, dtype_of(inputs[0])
        assert dtype is not None
        form = (device, dtype, sizes["D"])
        if form in self._ready or 0 in sizes.values():
            return
        launcher = self._launcher(device)
        launcher.load(dtype, sizes["D"])
        if self._checked is not None:
            self._checked(launcher, dtype, sizes["D"])
        self._ready.add(form)

    def _launcher(self, device: torch.device) -> BackwardLauncher:
        if device not in self._launchers:
            plan = self._backward
            found = BackwardLauncher.of(self._device_of(device), plan.texts, self._say)
            self._launchers[device] = found
        return self._launchers[device]

    # ---- backward ----------------------------------------------------------------------------------------------------

    def gradients(
        self,
        grads: tuple[Tensor | None, Tensor | None],
        inputs: Inputs,
        outputs: tuple[Tensor, Tensor | None],
        given: Values,
    ) -> InputGradients:
        """Of q, k and v. `grads`: those of `outputs`, which are the output and its LSE; None is zeros. Errors: CU847; those of
        a launch."""
        _check_order()
        read = _pass_inputs(grads, inputs, outputs)
        form = call_form((*read, *given), self._launcher(inputs[0].device).align)
        if form not in self._passes:
            if len(self._passes) >= MAX_PLANS:
                self._passes.clear()
            self._passes[form] = self._prepare(read, given)
        return self._passes[form](read, given)

    def gradient_shapes(self, inputs: Inputs) -> InputGradients:
        return InputGradients(*map(like, inputs))

    def _prepare(self, read: PassInputs, given: Values) -> _Pass:
        inputs, launcher = read[:3], self._launcher(read.q.device)
        preparer = Preparer(self._plan.captures, self._plan.arguments, self._launcher_of(read.q.device))
        try:
            preparer.check_kinds(inputs, given)
        except OtherKindError as error:
            other, values = self._train(inputs, given, error)
            return lambda read, given: other.gradients(
                (read.d_o, read.d_lse), read[:3], (read.o, read.lse), values(given)
            )
        captures, captured = preparer.read(inputs, given, launcher.pairs.arrays)
        prepared = launcher.prepare(read, captures)
        return lambda read, given: prepared(read, captured(read[:3], given))


def _pass_inputs(
    grads: tuple[Tensor | None, Tensor | None], inputs: Inputs, outputs: tuple[Tensor, Tensor | None]
) -> PassInputs:
    (d_o, d_lse), (o, lse) = grads, outputs
    lse = o.new_zeros(o.shape[:3], dtype=torch.float32) if lse is None else lse
    d_o = torch.zeros_like(o) if d_o is None else d_o
    return PassInputs(*inputs, o, lse, d_o, torch.zeros_like(lse) if d_lse is None else d_lse)


_UNORDERED: Final = "the parts of dq are added in no fixed order, so that its last bits differ from run to run"


def _check_order() -> None:
    """Errors: CU847 where PyTorch is told to give the same bits in each run; a warning where it is told to warn."""
    if not torch.are_deterministic_algorithms_enabled():
        return
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        help_ = "torch.use_deterministic_algorithms(False), or with warn_only=True"
        raise Refused(Diagnostic("CU847", f"deterministic algorithms are asked for, and {_UNORDERED}", help=help_))
    warnings.warn(_UNORDERED, stacklevel=1)
