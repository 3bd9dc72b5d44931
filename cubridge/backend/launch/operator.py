"""A patched kernel as a PyTorch operator: called like the reference, traceable, and refusing what it cannot answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from cubridge.backend.launch.arguments import bind_sizes
from cubridge.backend.launch.calls import Calls, Run
from cubridge.backend.launch.capturing import refuse_capturing
from cubridge.backend.launch.device import Device
from cubridge.backend.launch.extras import bind_extras, bind_inputs, check_tensors, split_values
from cubridge.backend.launch.kinds import OtherKindError
from cubridge.backend.launch.operator_plan import OperatorPlan, operator_key
from cubridge.backend.launch.registered import (
    CAPTURED,
    as_result,
    in_forward_mode,
    is_transformed,
    must_be_dispatched,
    needs_gradient,
    register,
)
from cubridge.backend.launch.runtime import Checked, Launcher, say_once
from cubridge.backend.launch.training import CheckedPass, Training
from cubridge.ir.diagnostics import CuError

if TYPE_CHECKING:
    from cubridge.backend.launch.prepared import Inputs, Values

Specialise = Callable[[Mapping[str, object], Mapping[str, int], CuError], "AttentionOperator"]

_NAMESPACE = "cubridge"
_serial = count()


class AttentionOperator:
    """Called like the reference: `operator(q, k, v, ..)` gives `out`, or `(out, lse)` where the reference does.

    `device_of` finds where to run for the device of q; `checked` sees each compiled form before its first result is handed out,
    and `checked_pass` each of the backward pass. `specialise` finds the operator for calls with arguments of another kind, where
    there is one. `training`: what autograd records, where the plan has a backward pass.
    Errors of a call: CU490, CU809, CU820 to CU826, CU829, CU847."""

    def __init__(
        self,
        plan: OperatorPlan,
        device_of: Callable[[torch.device], Device],
        checked: Checked | None = None,
        say: Callable[[str], None] | None = None,
        specialise: Specialise | None = None,
        checked_pass: CheckedPass | None = None,
    ) -> None:
        self.plan = plan
        self.key = operator_key(plan)
        self.name = f"{_NAMESPACE}::attention_{self.key[:16]}_{next(_serial)}"
        self._device_of = device_of
        self._checked = checked
        self._say = say_once() if say is None else say
        self._specialise = specialise
        self._launchers: dict[torch.device, Launcher] = {}
        self._calls = Calls(plan, plan.outputs, self.launcher, self._run_by_other)
        self._operator = register(self.name, self, len(plan.outputs))
        self.training: Training | None = None
        if plan.backward is not None:
            self.training = Training(
                f"{self.name}_training", plan, plan.backward, self.launcher, device_of, self._train_by_other,
                checked_pass, self._say,
            )  # fmt: skip

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        q, k, v, *rest = args if len(args) >= 3 else bind_inputs(self.plan.inputs, args, kwargs)
        check_tensors({"q": q, "k": k, "v": v})
        values = bind_extras(self.plan.arguments, rest, kwargs)
        inputs = as_autocast((q, k, v))
        state = self.plan.captures.state()
        given = (*values, *state.values())
        if torch.is_grad_enabled() or in_forward_mode():
            named = {**self.plan.named(inputs, values), **state}
            if is_recorded(named, self.plan.inputs if self.training is not None else ()):
                return self._train(inputs, given, (*self.plan.free, *state))
        if must_be_dispatched(inputs):
            return self._operator(*inputs, *split_values(given, (*self.plan.free, *state)))
        return as_result(self._calls(inputs, given))

    def _train(self, inputs: Inputs, given: Values, names: Sequence[str]) -> Any:
        """Errors: CU822 in a transform of `torch.func`, which an operator of `torch.library` with gradients does not take."""
        assert self.training is not None
        if is_transformed():
            raise needs_gradient("a transform of torch.func is recorded", "take torch.autograd.grad, or .backward()")
        if must_be_dispatched(inputs):
            saved = self.training.operator(*inputs, *split_values(given, names))
        else:
            saved = self.training.record(inputs, given)
        return as_result(([saved] if isinstance(saved, Tensor) else saved)[: len(self.plan.outputs)])

    def run(self, inputs: Inputs, given: Values) -> list[Tensor]:
        """What the operator does on real tensors. `given`: the extra arguments without the fixed ones, and what the reference
        keeps."""
        return self._calls(inputs, given)

    def shapes(self, inputs: Inputs) -> list[Tensor]:
        """What the operator gives on fake tensors: outputs without values."""
        return self.plan.shapes(inputs, self.plan.outputs)

    def _run_by_other(self, inputs: Inputs, given: Values, error: OtherKindError) -> Run:
        other, named = self._other(inputs, given, error)
        return lambda inputs, given: other.run(inputs, other.values_of(named(given), torch.is_grad_enabled()))

    def _train_by_other(
        self, inputs: Inputs, given: Values, error: OtherKindError
    ) -> tuple[Training | None, Callable[[Values], Values]]:
        other, named = self._other(inputs, given, error)
        return other.training, lambda given: other.values_of(named(given), recorded=True)

    def _other(
        self, inputs: Inputs, given: Values, error: OtherKindError
    ) -> tuple[AttentionOperator, Callable[[Values], Mapping[str, object]]]:
        """The operator for calls with arguments of another kind, and the values of a call by their names."""
        if self._specialise is None:
            raise error
        refuse_capturing(inputs[0].device, "arguments of a new kind are given")
        arguments = dict(zip(self.plan.free, given, strict=False))
        sizes = bind_sizes(self.plan.text.contract, dict(zip("qkv", inputs, strict=True)))
        other = self._specialise(arguments, sizes, error)
        bind_extras(other.plan.arguments, (), arguments)
        self._say(f"{error.diagnostics[0].message}: the reference is adapted to such calls too")
        names = (*self.plan.free, *self.plan.captures.state())
        return other, lambda given: dict(zip(names, given, strict=True))

    def values_of(self, named: Mapping[str, object], recorded: bool) -> Values:
        """What `run` is given, of values by their names; what the reference keeps and they lack is read now. Errors: CU822 for one
        of these that requires a gradient, where the call is `recorded`."""
        state = self.plan.captures.state()
        for path, now in state.items():
            if recorded and path not in named and now.requires_grad:
                raise needs_gradient(f"`{path}` requires a gradient", CAPTURED)
        return (*(named[n] for n in self.plan.free), *(named.get(path, now) for path, now in state.items()))

    def launcher(self, device: torch.device) -> Launcher:
        """The launcher for tensors on `device`. Errors: CU820 where nothing there runs kernels."""
        if device not in self._launchers:
            plan = self.plan
            self._launchers[device] = Launcher(
                self._device_of(device), plan.text, plan.preconditions, self._say, self._checked
            )
        return self._launchers[device]


def as_autocast(inputs: Inputs) -> Inputs:
    """q, k, v as `scaled_dot_product_attention` reads them: under autocast in its type."""
    kind = inputs[0].device.type
    if kind not in ("cuda", "cpu") or not torch.is_autocast_enabled(kind):
        return inputs
    dtype = torch.get_autocast_dtype(kind)
    q, k, v = (t.to(dtype) if t.is_floating_point() and t.dtype is not torch.float64 else t for t in inputs)
    return q, k, v


def is_recorded(values: Mapping[str, object], learned: Collection[str]) -> bool:
    """Does autograd record a call with these values, because of one of `learned`? Errors: CU822 for another tensor that requires a
    gradient, and for one that has a tangent: a detached answer would be a lie."""
    recorded, forward, found = torch.is_grad_enabled(), in_forward_mode(), False
    for name, value in values.items():
        if not isinstance(value, Tensor):
            continue
        if forward and unpack_dual(value).tangent is not None:
            help_ = "detach the input; there is no forward differentiation"
            raise needs_gradient(f"`{name}` has a tangent of forward differentiation", help_)
        if recorded and value.requires_grad:
            if name not in learned:
                what = f"`{name}` requires a gradient"
                raise needs_gradient(what, CAPTURED) if learned else needs_gradient(what)
            found = True
    return found
