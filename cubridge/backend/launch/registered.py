"""The operator as PyTorch knows it: for whoever traces, transforms or records calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from cubridge.backend.launch.extras import joined_values
from cubridge.ir.diagnostics import CuError, Diagnostic, Refused

if TYPE_CHECKING:
    from cubridge.backend.launch.extras import Number

_SCHEMA: Final = "(Tensor q, Tensor k, Tensor v, Tensor[] tensors, Scalar[] numbers, bool[] are_tensors) -> "

Registered = Callable[..., Tensor | tuple[Tensor, Tensor]]


class Implementation(Protocol):
    """What an operator does with real tensors, and what it gives for fake ones: outputs without values."""

    def run(self, inputs: tuple[Tensor, Tensor, Tensor], given: tuple[object, ...]) -> list[Tensor]: ...

    def shapes(self, inputs: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]: ...


def register(name: str, implementation: Implementation, outputs: int) -> Registered:
    """A `torch.library` operator with one or two outputs, which has no gradient and no batching rule."""

    def run(
        q: Tensor, k: Tensor, v: Tensor, tensors: list[Tensor], numbers: list[Number], are_tensors: list[bool]
    ) -> object:
        return as_result(implementation.run((q, k, v), joined_values(tensors, numbers, are_tensors)))

    def fake(
        q: Tensor, k: Tensor, v: Tensor, tensors: list[Tensor], numbers: list[Number], are_tensors: list[bool]
    ) -> object:
        del tensors, numbers, are_tensors
        return as_result(implementation.shapes((q, k, v)))

    def refuse(*_: object) -> None:
        raise needs_gradient("an input requires a gradient")

    def batched(*_: Any) -> None:
        help_ = "make the mapped axis a part of B, or of the heads"
        raise Refused(Diagnostic("CU821", "this operator has no rule for vmap", help=help_))

    schema = _SCHEMA + ("Tensor" if outputs == 1 else "(Tensor, Tensor)")
    registered = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
    registered.register_fake(fake)
    registered.register_autograd(refuse, setup_context=lambda ctx, inputs, output: refuse())
    registered.register_vmap(batched)
    return registered


def as_result(outputs: Sequence[Tensor]) -> Any:
    """A tensor, or a tuple of them, as the reference gives."""
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def needs_gradient(what: str, help_: str = "call it under torch.no_grad(), or detach the input") -> CuError:
    return Refused(
        Diagnostic("CU822", f"{what}; this operator has none to give", help=f"{help_}; there is no backward yet")
    )


_private: Final[Any] = torch._C  # pyright: ignore[reportPrivateUsage]


def in_forward_mode() -> bool:
    """May tensors have tangents?"""
    return forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


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
