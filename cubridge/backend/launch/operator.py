"""A patched kernel as a PyTorch operator: called like the reference, traceable, and refusing what it cannot answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from cubridge.backend.compile.cache import content_key
from cubridge.backend.compile.headers import include_closure
from cubridge.backend.launch.arguments import bind_sizes, check_types
from cubridge.backend.launch.call_plan import call_form, output_forms
from cubridge.backend.launch.captured import CaptureSource, NoCaptures
from cubridge.backend.launch.capturing import refuse_capturing
from cubridge.backend.launch.device import Device, KernelText
from cubridge.backend.launch.extras import (
    ExtraArgument,
    bind_extras,
    bind_inputs,
    check_tensors,
    split_values,
    without_data,
)
from cubridge.backend.launch.kinds import OtherKindError
from cubridge.backend.launch.prepare import Preparer
from cubridge.backend.launch.registered import as_result, in_forward_mode, must_be_dispatched, needs_gradient, register
from cubridge.backend.launch.runtime import LSE, MAX_PLANS, OUTPUT, Checked, Launcher, say_once
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Precondition

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.backend.launch.prepared import Inputs, Values

Specialise = Callable[[Mapping[str, object], Mapping[str, int], CuError], "AttentionOperator"]

_NAMESPACE = "cubridge"
_serial = count()


@dataclass(frozen=True)
class OperatorPlan:
    """What one operator computes.

    `captures`: what the reference reads besides q, k, v. `constants`: the captured values among them that the reference writes
    out; they are part of the operator's identity."""

    text: KernelText
    captures: CaptureSource = field(default_factory=NoCaptures, repr=False)
    arguments: tuple[ExtraArgument, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    constants: Mapping[str, CaptureValue] = field(default_factory=dict[str, "CaptureValue"])
    gives_lse: bool = False
    inputs: tuple[str, ...] = ("q", "k", "v")
    """Names of q, k, v in the reference, by which a call may give them."""
    needs_keys: bool = False
    """Is the LSE of a row another than -inf where there are no keys at all, as one that a sink joins?"""
    free: tuple[str, ...] = field(init=False)
    """The arguments that a call gives."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "free", tuple(a.name for a in self.arguments if not a.fixed))

    @property
    def outputs(self) -> tuple[str, ...]:
        return (OUTPUT, LSE) if self.gives_lse else (OUTPUT,)

    def named(self, inputs: Inputs, values: Values) -> dict[str, object]:
        """The arguments of a call by their names."""
        return dict(zip((*self.inputs, *self.free), (*inputs, *values), strict=True))


class AttentionOperator:
    """Called like the reference: `operator(q, k, v, ..)` gives `out`, or `(out, lse)` where the reference does.

    `device_of` finds where to run for the device of q; `checked` sees each compiled form before its first result is handed out.
    `specialise` finds the operator for calls with arguments of another kind, where there is one.
    Errors of a call: CU490, CU809, CU820 to CU826, CU829."""

    def __init__(
        self,
        plan: OperatorPlan,
        device_of: Callable[[torch.device], Device],
        checked: Checked | None = None,
        say: Callable[[str], None] | None = None,
        specialise: Specialise | None = None,
    ) -> None:
        self.plan = plan
        self.key = operator_key(plan)
        self.name = f"{_NAMESPACE}::attention_{self.key[:16]}_{next(_serial)}"
        self._device_of = device_of
        self._checked = checked
        self._say = say_once() if say is None else say
        self._specialise = specialise
        self._align = max((t.align_bytes for t in plan.text.contract.tensors), default=1)
        self._launchers: dict[torch.device, Launcher] = {}
        self._prepared: dict[tuple[object, ...], Callable[[Inputs, Values], list[Tensor]]] = {}
        self._operator = register(self.name, self, len(plan.outputs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        q, k, v, *rest = args if len(args) >= 3 else bind_inputs(self.plan.inputs, args, kwargs)
        check_tensors({"q": q, "k": k, "v": v})
        values = bind_extras(self.plan.arguments, rest, kwargs)
        inputs = as_autocast((q, k, v))
        state = self.plan.captures.state()
        if torch.is_grad_enabled() or in_forward_mode():
            refuse_gradients({**self.plan.named(inputs, values), **state})
        given = (*values, *state.values())
        if must_be_dispatched(inputs):
            return self._operator(*inputs, *split_values(given, (*self.plan.free, *state)))
        return as_result(self.run(inputs, given))

    def run(self, inputs: Inputs, given: Values) -> list[Tensor]:
        """What the operator does on real tensors. `given`: the extra arguments without the fixed ones, and what the reference
        keeps."""
        try:
            form = call_form((*inputs, *given), self._align)
        except (RuntimeError, NotImplementedError) as error:
            raise without_data((*inputs, *given)) from error
        prepared = self._prepared.get(form)
        if prepared is None:
            prepared = self._prepare(inputs, given)
            if len(self._prepared) >= MAX_PLANS:
                self._prepared.clear()
            self._prepared[form] = prepared
        return prepared(inputs, given)

    def _prepare(self, inputs: Inputs, given: Values) -> Callable[[Inputs, Values], list[Tensor]]:
        launcher = self.launcher(inputs[0].device)
        sizes = bind_sizes(self.plan.text.contract, dict(zip("qkv", inputs, strict=True)))
        if self.plan.needs_keys and not sizes["Lk"]:
            message = "there are no keys, and the reference gives another LSE than -inf then"
            raise Refused(Diagnostic("CU826", message, help="no kernel is launched without keys; leave the call out"))
        try:
            return Preparer(self.plan.captures, self.plan.arguments, launcher, self.plan.outputs).prepare(inputs, given)
        except OtherKindError as error:
            if self._specialise is None:
                raise
            refuse_capturing(inputs[0].device, "arguments of a new kind are given")
            named = dict(zip(self.plan.free, given, strict=False))
            other = self._specialise(named, sizes, error)
            bind_extras(other.plan.arguments, (), named)
            names = (*self.plan.free, *self.plan.captures.state())
            self._say(f"{error.diagnostics[0].message}: the reference is adapted to such calls too")
            return lambda inputs, given: other.run(inputs, other.values_of(dict(zip(names, given, strict=True))))

    def values_of(self, named: Mapping[str, object]) -> Values:
        """What `run` is given, of values by their names; what the reference keeps and they lack is read now."""
        state = self.plan.captures.state()
        return (*(named[n] for n in self.plan.free), *(named.get(path, now) for path, now in state.items()))

    def launcher(self, device: torch.device) -> Launcher:
        """The launcher for tensors on `device`. Errors: CU820 where nothing there runs kernels."""
        if device not in self._launchers:
            plan = self.plan
            self._launchers[device] = Launcher(
                self._device_of(device), plan.text, plan.preconditions, self._say, self._checked
            )
        return self._launchers[device]

    def shapes(self, inputs: Inputs) -> list[Tensor]:
        """What the operator gives on fake tensors: outputs without values."""
        contract, named = self.plan.text.contract, dict(zip("qkv", inputs, strict=True))
        check_types(contract, named)
        forms = output_forms(contract, self.plan.outputs, bind_sizes(contract, named), inputs[0].dtype)
        made = {o.name: inputs[0].new_empty(o.shape, dtype=o.dtype) for o in forms}
        return [made[name] for name in self.plan.outputs]


def operator_key(plan: OperatorPlan) -> str:
    """Content of an operator: text, headers, contract, preconditions, arguments, constants."""
    headers = [(name, h.digest) for name, h in include_closure(plan.text.source, plan.text.include_dirs).items()]
    return content_key(
        plan.text.source.digest,
        headers,
        plan.text.contract,
        [print_expr(p.condition) for p in plan.preconditions],
        plan.arguments,
        sorted((name, _content(value)) for name, value in plan.constants.items()),
        plan.gives_lse,
    )


def _content(value: CaptureValue) -> object:
    if not isinstance(value, Tensor):
        return (type(value).__name__, repr(value))
    plain = value.detach().cpu().contiguous()
    return (str(plain.dtype), tuple(plain.shape), plain.reshape(-1).view(torch.uint8).numpy().tobytes())


def as_autocast(inputs: Inputs) -> Inputs:
    """q, k, v as `scaled_dot_product_attention` reads them: under autocast in its type."""
    kind = inputs[0].device.type
    if kind not in ("cuda", "cpu") or not torch.is_autocast_enabled(kind):
        return inputs
    dtype = torch.get_autocast_dtype(kind)
    q, k, v = (t.to(dtype) if t.is_floating_point() and t.dtype is not torch.float64 else t for t in inputs)
    return q, k, v


def refuse_gradients(values: Mapping[str, object]) -> None:
    """Errors: CU822 for a tensor of which autograd would record the call, or that has a tangent. There is no backward, and a
    detached answer would be a lie."""
    recorded, forward = torch.is_grad_enabled(), in_forward_mode()
    for name, value in values.items():
        if not isinstance(value, Tensor):
            continue
        if recorded and value.requires_grad:
            raise needs_gradient(f"`{name}` requires a gradient")
        if forward and unpack_dual(value).tangent is not None:
            raise needs_gradient(f"`{name}` has a tangent of forward differentiation", "detach the input")
