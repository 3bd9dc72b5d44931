"""The operator as PyTorch knows it: for whoever traces, transforms or records calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from cubridge.backend.launch.extras import joined_values
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused

if TYPE_CHECKING:
    from cubridge.backend.launch.backward import InputGradients
    from cubridge.backend.launch.extras import Number
    from cubridge.backend.launch.prepared import Inputs, Values

_INPUTS: Final = "Tensor q, Tensor k, Tensor v"
_VALUES: Final = "Tensor[] tensors, Scalar[] numbers, bool[] are_tensors"
_RESULTS: Final = ("Tensor", "(Tensor, Tensor)")
"""Of one output, and of two."""
_BACKWARD: Final = (
    f"(Tensor? d_o, Tensor? d_lse, {_INPUTS}, Tensor o, Tensor? lse, {_VALUES}) -> (Tensor, Tensor, Tensor)"
)

Registered = Callable[..., Any]
"""Called with q, k, v and what `split_values` gives."""


class Implementation(Protocol):
    """What an operator does with real tensors, and what it gives for fake ones: outputs without values."""

    def run(self, inputs: Inputs, given: Values) -> list[Tensor]: ...

    def shapes(self, inputs: Inputs) -> list[Tensor]: ...


class TrainingImplementation(Implementation, Protocol):
    """And the gradients of q, k and v: from those of output and LSE, None of one that is not used, and these two."""

    def gradients(
        self,
        grads: tuple[Tensor | None, Tensor | None],
        inputs: Inputs,
        outputs: tuple[Tensor, Tensor | None],
        given: Values,
    ) -> InputGradients: ...

    def gradient_shapes(self, inputs: Inputs) -> InputGradients: ...


def register(name: str, implementation: Implementation, outputs: int) -> Registered:
    """A `torch.library` operator with one or two outputs, which has no gradient and no batching rule."""

    def refuse(*_: object) -> NoReturn:
        raise needs_gradient("an input requires a gradient")

    registered = _forward(name, implementation, outputs)
    registered.register_autograd(refuse, setup_context=lambda ctx, inputs, output: refuse())
    return registered


def register_training(name: str, implementation: TrainingImplementation, outputs: int) -> tuple[Registered, Registered]:
    """The same with the gradients of q, k and v; and the operator that gives these, NAME_backward."""
    backward = _backward(f"{name}_backward", implementation)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        q, k, v, tensors, ctx.numbers, ctx.are_tensors = inputs
        if any(t.requires_grad for t in tensors):
            raise needs_gradient("a captured tensor requires a gradient", CAPTURED)
        ctx.set_materialize_grads(False)
        o, lse = (output, None) if outputs == 1 else output
        ctx.save_for_backward(q, k, v, o, lse, *tensors)

    def gradient(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None = None) -> tuple[Any, ...]:
        q, k, v, o, lse, *tensors = ctx.saved_tensors
        found = backward(d_o, d_lse, q, k, v, o, lse, tensors, ctx.numbers, ctx.are_tensors)
        return (*found, [None] * len(tensors), _no_gradient(ctx.numbers), _no_gradient(ctx.are_tensors))

    registered = _forward(name, implementation, outputs)
    registered.register_autograd(gradient, setup_context=setup)
    return registered, backward


def _no_gradient(values: list[object]) -> list[object] | None:
    """Of a list without tensors. PyTorch takes an empty one for a list of tensors, and expects a list."""
    return None if values else []


def _forward(name: str, implementation: Implementation, outputs: int) -> Any:
    """Without a gradient."""

    def run(
        q: Tensor, k: Tensor, v: Tensor, tensors: list[Tensor], numbers: list[Number], are_tensors: list[bool]
    ) -> object:
        return as_result(implementation.run((q, k, v), joined_values(tensors, numbers, are_tensors)))

    def fake(
        q: Tensor, k: Tensor, v: Tensor, tensors: list[Tensor], numbers: list[Number], are_tensors: list[bool]
    ) -> object:
        del tensors, numbers, are_tensors
        return as_result(implementation.shapes((q, k, v)))

    return _registered(name, f"({_INPUTS}, {_VALUES}) -> {_RESULTS[outputs - 1]}", run, fake)


def _backward(name: str, implementation: TrainingImplementation) -> Any:
    def run(
        d_o: Tensor | None, d_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor | None,
        tensors: list[Tensor], numbers: list[Number], are_tensors: list[bool],
    ) -> InputGradients:  # fmt: skip
        given = joined_values(tensors, numbers, are_tensors)
        return implementation.gradients((d_o, d_lse), (q, k, v), (o, lse), given)

    def fake(d_o: Tensor | None, d_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *_: object) -> InputGradients:
        del d_o, d_lse
        return implementation.gradient_shapes((q, k, v))

    def refuse(*_: object) -> NoReturn:
        raise Refused(Diagnostic("CU822", "a gradient of gradients is asked for, and backward kernels have none"))

    registered = _registered(name, _BACKWARD, run, fake)
    registered.register_autograd(refuse)
    return registered


def _registered(name: str, schema: str, run: Callable[..., object], fake: Callable[..., object]) -> Any:
    def batched(*_: Any) -> None:
        help_ = "make the mapped axis a part of B, or of the heads"
        raise Refused(Diagnostic("CU821", "this operator has no rule for vmap", help=help_))

    registered = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
    registered.register_fake(fake)
    registered.register_vmap(batched)
    return registered


def as_result(outputs: Sequence[Tensor]) -> Any:
    """A tensor, or a tuple of them, as the reference gives."""
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


CAPTURED: Final = "detach it: q, k and v get gradients, what is captured gets none yet"
_NO_BACKWARD: Final = "adapt with grad=True to a kernel that has a backward pass; or call it under torch.no_grad()"


def needs_gradient(what: str, help_: str = _NO_BACKWARD) -> CuError:
    return Refused(Diagnostic("CU822", f"{what}; this operator has none to give", help=help_))


_private: Final[Any] = torch._C  # pyright: ignore[reportPrivateUsage]


def in_forward_mode() -> bool:
    """May tensors have tangents?"""
    return forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


def is_transformed() -> bool:
    """Is a call in a transform of `torch.func`? Compilers trace these themselves."""
    return not torch.compiler.is_compiling() and _private._functorch.peek_interpreter_stack() is not None


def must_be_dispatched(inputs: Sequence[Tensor]) -> bool:
    """Does something of PyTorch besides plain execution take part in a call: tracing, a transform, a mode, a tensor subclass?
    Else a call goes past the dispatcher, which takes longer than the rest of it."""
    return (
        torch.compiler.is_compiling()
        or any(type(t) is not Tensor for t in inputs)
        or _private._len_torch_dispatch_stack() > 0
        or _private._len_torch_function_stack() > 0
        or _private._functorch.peek_interpreter_stack() is not None
        or _private._get_tracing_state() is not None
    )
