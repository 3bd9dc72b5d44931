"""A patched kernel as a `torch.library` operator: called like the reference, traceable, and refusing what it cannot answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cubridge.backend.compile.cache import content_key
from cubridge.backend.compile.headers import include_closure
from cubridge.backend.launch.arguments import bind_sizes, check_types, outputs_of
from cubridge.backend.launch.device import Device, KernelText
from cubridge.backend.launch.kinds import Kind, check_kind
from cubridge.backend.launch.runtime import LSE, OUTPUT, Checked, Launcher, new_output, say_once
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Precondition

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue

    Number = bool | int | float
    CaptureSource = Callable[[Mapping[str, Tensor], Mapping[str, object]], Mapping[str, CaptureValue]]

_NAMESPACE = "cubridge"
_SCHEMA = "(Tensor q, Tensor k, Tensor v, Tensor?[] tensors, Scalar[] numbers) -> "
_serial = count()


@dataclass(frozen=True, slots=True)
class ExtraArgument:
    """An argument of the reference besides q, k, v. `kind`: what a call may give; None where it is `fixed`, and the adaptation
    holds for the value `adapted` alone (a flag, a string, a number that the reference turns into something else)."""

    name: str
    default: object = inspect.Parameter.empty
    kind: Kind | None = None
    fixed: bool = False
    adapted: object = None

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """What one operator computes.

    `captures`: from {q, k, v} and the extra arguments to every captured value that the kernel or its host formulas read.
    `constants`: the captured values among them that the reference fixes; they are part of the operator's identity. `held`: the
    tensors that the reference computes with besides its arguments."""

    text: KernelText
    captures: CaptureSource = field(repr=False)
    arguments: tuple[ExtraArgument, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    constants: Mapping[str, CaptureValue] = field(default_factory=dict)
    gives_lse: bool = False
    held: Callable[[], tuple[Tensor, ...]] = field(default=tuple, repr=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (OUTPUT, LSE) if self.gives_lse else (OUTPUT,)


class AttentionOperator:
    """Called like the reference: `operator(q, k, v, ..)` gives `out`, or `(out, lse)` where the reference does.

    `device_of` finds where to run for the device of q; `checked` sees each compiled form before its first result is handed out.
    Errors of a call: CU809, CU820 to CU826."""

    def __init__(
        self,
        plan: OperatorPlan,
        device_of: Callable[[torch.device], Device],
        checked: Checked | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.plan = plan
        self.key = operator_key(plan)
        self.name = f"{_NAMESPACE}::attention_{self.key[:16]}_{next(_serial)}"
        self._device_of = device_of
        self._checked = checked
        self._say = say_once() if say is None else say
        self._launchers: dict[torch.device, Launcher] = {}
        self._operator = _register(self)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, *args: object, **kwargs: object
    ) -> Tensor | tuple[Tensor, Tensor]:
        tensors, numbers = _split(bind_extras(self.plan.arguments, args, kwargs))
        refuse_gradients({"q": q, "k": k, "v": v}, self.plan, tensors)
        return self._operator(q, k, v, tensors, numbers)

    def launcher(self, device: torch.device) -> Launcher:
        """The launcher for tensors on `device`. Errors: CU820 where nothing there runs kernels."""
        if device not in self._launchers:
            plan = self.plan
            self._launchers[device] = Launcher(
                self._device_of(device), plan.text, plan.preconditions, self._say, self._checked
            )
        return self._launchers[device]

    def run(self, inputs: Mapping[str, Tensor], extras: Mapping[str, object]) -> list[Tensor]:
        """What the operator does on real tensors."""
        sizes = bind_sizes(self.plan.text.contract, inputs)
        for argument in self.plan.arguments:
            if argument.kind is not None:
                check_kind(argument.name, argument.kind, extras[argument.name], sizes)
        captures = self.plan.captures(inputs, extras)
        outputs = self.launcher(inputs["q"].device).run(inputs, captures, self.plan.outputs)
        return [outputs[name] for name in self.plan.outputs]

    def shapes(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """What the operator gives on fake tensors: outputs without values."""
        check_types(self.plan.text.contract, inputs)
        sizes = bind_sizes(self.plan.text.contract, inputs)
        by_name = {a.name: a for a in outputs_of(self.plan.text.contract)}
        return [new_output(by_name[name], sizes, inputs["q"]) for name in self.plan.outputs]


def operator_key(plan: OperatorPlan) -> str:
    """Content of an operator: text, headers, contract, preconditions, arguments, captured constants."""
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


def bind_extras(
    arguments: Sequence[ExtraArgument], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The extra arguments by name, as Python binds them, without the fixed ones.
    Errors: CU821 for a missing, unknown or repeated one, and for another value of a fixed one."""
    given = _given_extras(arguments, args, kwargs)
    bound: dict[str, object] = {}
    for argument in arguments:
        if argument.name not in given and argument.required:
            raise _bad_call(f"the argument `{argument.name}` is missing")
        value = given.get(argument.name, argument.default)
        if not argument.fixed:
            bound[argument.name] = value
        elif value is not argument.adapted and value != argument.adapted:
            raise _bad_call(
                f"`{argument.name}` is {value!r}; the kernel was adapted with {argument.adapted!r}",
                "adapt the reference with this value",
            )
    return bound


def _given_extras(
    arguments: Sequence[ExtraArgument], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """What a call gives, by name. Errors: CU821 for an unknown or repeated argument."""
    if len(args) > len(arguments):
        raise _bad_call(f"{len(args)} arguments after q, k, v; the reference takes {len(arguments)}")
    given = {a.name: value for a, value in zip(arguments, args, strict=False)}
    for name, value in kwargs.items():
        if name in given:
            raise _bad_call(f"two values for the argument `{name}`")
        if all(a.name != name for a in arguments):
            raise _bad_call(f"the reference has no argument `{name}`")
        given[name] = value
    return given


def refuse_gradients(inputs: Mapping[str, Tensor], plan: OperatorPlan, tensors: Sequence[Tensor | None]) -> None:
    """Errors: CU822 where autograd would record this call. There is no backward, and a detached answer would be a lie."""
    if not torch.is_grad_enabled():
        return
    names = [*inputs, *(a.name for a in plan.arguments if not a.fixed)]
    for name, tensor in zip(names, (*inputs.values(), *tensors), strict=True):
        if tensor is not None and tensor.requires_grad:
            raise _needs_gradient(f"`{name}` requires a gradient")
    if any(tensor.requires_grad for tensor in plan.held()):
        raise _needs_gradient("a parameter that the reference holds requires a gradient")


def _register(operator: AttentionOperator) -> Callable[..., Tensor | tuple[Tensor, Tensor]]:
    names = [a.name for a in operator.plan.arguments if not a.fixed]
    single = not operator.plan.gives_lse

    def run(q: Tensor, k: Tensor, v: Tensor, tensors: list[Tensor | None], numbers: list[Number]) -> object:
        values = [number if tensor is None else tensor for tensor, number in zip(tensors, numbers, strict=True)]
        outputs = operator.run({"q": q, "k": k, "v": v}, dict(zip(names, values, strict=True)))
        return outputs[0] if single else tuple(outputs)

    def fake(q: Tensor, k: Tensor, v: Tensor, tensors: list[Tensor | None], numbers: list[Number]) -> object:
        del tensors, numbers
        outputs = operator.shapes({"q": q, "k": k, "v": v})
        return outputs[0] if single else tuple(outputs)

    def refuse(*_: object) -> None:
        raise _needs_gradient("an input requires a gradient")

    schema = _SCHEMA + ("Tensor" if single else "(Tensor, Tensor)")
    registered = torch.library.custom_op(operator.name, run, mutates_args=(), schema=schema)
    registered.register_fake(fake)
    registered.register_autograd(refuse, setup_context=lambda ctx, inputs, output: refuse())
    return registered


def _split(extras: Mapping[str, object]) -> tuple[list[Tensor | None], list[Number]]:
    """Extra arguments in order as the operator's two lists; one holds None or 0 where the other holds the value."""
    tensors: list[Tensor | None] = []
    numbers: list[Number] = []
    for name, value in extras.items():
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            numbers.append(0)
        elif isinstance(value, (bool, int, float)):
            tensors.append(None)
            numbers.append(value)
        else:
            raise _bad_call(f"`{name}` is a {type(value).__name__}; a tensor or a number is expected")
    return tensors, numbers


def _content(value: CaptureValue) -> object:
    if not isinstance(value, Tensor):
        return (type(value).__name__, repr(value))
    plain = value.detach().cpu().contiguous()
    return (str(plain.dtype), tuple(plain.shape), plain.reshape(-1).view(torch.uint8).numpy().tobytes())


def _bad_call(message: str, help_: str | None = None) -> CuError:
    return CuError(Diagnostic("CU821", message, help=help_))


def _needs_gradient(what: str) -> Refused:
    help_ = "call it under torch.no_grad(), or detach the input; there is no backward yet"
    return Refused(Diagnostic("CU822", f"{what}; this operator has none to give", help=help_))
