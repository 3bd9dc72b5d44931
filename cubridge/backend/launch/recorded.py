"""Calls that autograd records past the dispatcher, which takes longer than the rest of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from cubridge.backend.launch.extras import joined_values
from cubridge.backend.launch.registered import must_be_dispatched

if TYPE_CHECKING:
    from cubridge.backend.launch.prepared import Inputs, Values
    from cubridge.backend.launch.registered import Registered, TrainingImplementation


def record(implementation: TrainingImplementation, backward: Registered, inputs: Inputs, given: Values) -> list[Tensor]:
    """What the forward pass gives. `backward`: the operator of PyTorch that gives gradients where something besides plain execution
    takes part in the backward pass."""
    apply: Any = _Attention.apply
    return [*apply(implementation, backward, given, *inputs)]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, implementation: TrainingImplementation, backward: Registered, given: Values, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        q, k, v = inputs
        o, *lse = implementation.run((q, k, v), given)
        ctx.implementation, ctx.backward_operator = implementation, backward
        ctx.are_tensors = [isinstance(value, Tensor) for value in given]
        ctx.numbers = [value for value in given if not isinstance(value, Tensor)]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, o, *(lse or [None]), *(t for t in given if isinstance(t, Tensor)))
        return (o, *lse)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        d_o, d_lse = grads if len(grads) == 2 else (*grads, None)
        q, k, v, o, lse, *tensors = ctx.saved_tensors
        if torch.is_grad_enabled() or must_be_dispatched((q, k, v)):
            found = ctx.backward_operator(d_o, d_lse, q, k, v, o, lse, tensors, ctx.numbers, ctx.are_tensors)
        else:
            given = joined_values(tensors, ctx.numbers, ctx.are_tensors)
            found = ctx.implementation.gradients((d_o, d_lse), (q, k, v), (o, lse), given)
        return (*_NONE, *found)


_NONE: Final = (None, None, None)
"""Gradients of what is no input."""
