"""What one operator computes, and its content by which it is told from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cubridge.backend.compile.cache import content_key
from cubridge.backend.compile.headers import include_closure
from cubridge.backend.launch.arguments import bind_sizes, check_types
from cubridge.backend.launch.call_plan import output_forms
from cubridge.backend.launch.captured import CaptureSource, NoCaptures
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.extras import ExtraArgument
from cubridge.backend.launch.runtime import LSE, OUTPUT
from cubridge.ir.printer import print_expr
from cubridge.ir.spec import Precondition

if TYPE_CHECKING:
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.backend.launch.prepared import Inputs, Values


@dataclass(frozen=True, slots=True)
class BackwardPlan:
    """The kernels of a backward pass in the order in which they run. `saves_lse`: reads it the LSE of the forward kernel?
    `preconditions`: on sizes, beside those of the forward kernel."""

    texts: tuple[KernelText, KernelText, KernelText]
    saves_lse: bool
    preconditions: tuple[Precondition, ...] = ()

    @property
    def saved(self) -> tuple[str, ...]:
        """What the forward kernel hands on, by its contract's names."""
        return (OUTPUT, LSE) if self.saves_lse else (OUTPUT,)


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
    backward: BackwardPlan | None = None
    """Where there is one, the gradients of q, k and v."""
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

    def shapes(self, inputs: Inputs, outputs: Sequence[str]) -> list[Tensor]:
        """Outputs without values of a call, by the contract's names, also on fake tensors. Errors: CU821, CU826."""
        contract, named = self.text.contract, dict(zip("qkv", inputs, strict=True))
        check_types(contract, named)
        forms = output_forms(contract, outputs, bind_sizes(contract, named), inputs[0].dtype)
        made = {o.name: inputs[0].new_empty(o.shape, dtype=o.dtype) for o in forms}
        return [made[name] for name in outputs]


def operator_key(plan: OperatorPlan) -> str:
    """Content of an operator: texts, headers, contracts, preconditions, arguments, constants."""
    return content_key(
        _text_content(plan.text),
        _conditions(plan.preconditions),
        plan.arguments,
        sorted((name, _content(value)) for name, value in plan.constants.items()),
        plan.gives_lse,
        None if plan.backward is None else _backward_content(plan.backward),
    )


def _backward_content(plan: BackwardPlan) -> object:
    return ([_text_content(text) for text in plan.texts], plan.saves_lse, _conditions(plan.preconditions))


def _conditions(preconditions: Sequence[Precondition]) -> list[str]:
    return [print_expr(p.condition) for p in preconditions]


def _text_content(text: KernelText) -> object:
    headers = [(name, h.digest) for name, h in include_closure(text.source, text.include_dirs).items()]
    return (text.source.digest, headers, text.contract)


def _content(value: CaptureValue) -> object:
    if not isinstance(value, Tensor):
        return (type(value).__name__, repr(value))
    plain = value.detach().cpu().contiguous()
    return (str(plain.dtype), tuple(plain.shape), plain.reshape(-1).view(torch.uint8).numpy().tobytes())
