"""Runs recorded calls again on real tensors: in fp64 as the oracle, or as recorded for captures computed before a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cubridge.engine.elements import default_dtype
from cubridge.frontend.reference.algebra.terms import Term
from cubridge.frontend.reference.evaluate import CPU, evaluate_number
from cubridge.frontend.reference.record import Call, Recording, first_line
from cubridge.frontend.reference.refusal import fail
from cubridge.frontend.reference.sizes import SizeReader

_FILLS: Final = {
    "full": "fill_value",
    "new_full": "fill_value",
    "full_like": "fill_value",
    "fill": "value",
    "scalar_tensor": "s",
}
"""Calls whose result is one number, with its parameter: constants stay as the reference rounds them, sizes are exact."""

_HALF_TO_FLOAT: Final = frozenset(("_softmax", "_log_softmax"))

_OTHERWISE: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys((torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default), torch.reshape),
    torch.ops.cubridge_reference.product.default: torch.matmul,
}
"""Views were recorded where the strides allowed it; nothing is written in place here, so that a copy does where others do not. Our
own operation runs nowhere."""


@dataclass
class Replay:
    """One replay, on one device. `values`: real tensors by the identity of their fake twins. `differentiable`: PyTorch keeps what
    its gradients need."""

    recording: Recording
    reader: SizeReader
    sizes: Mapping[str, int | float | bool]
    wide: bool
    device: torch.device
    differentiable: bool = False
    values: dict[int, Tensor] = field(default_factory=dict)
    numbers: dict[Term, int | float | bool] = field(default_factory=dict)
    producers: dict[int, Call] = field(default_factory=dict)

    @staticmethod
    def start(
        recording: Recording,
        reader: SizeReader,
        sizes: Mapping[str, int],
        inputs: Mapping[str, Tensor | int | float | bool],
        wide: bool,
        device: torch.device = CPU,
        differentiable: bool = False,
    ) -> Replay:
        """`wide`: every float is fp64. `inputs`: q, k, v and the extra inputs by name."""
        scalars = {n: v for n, v in inputs.items() if not isinstance(v, Tensor)}
        replay = Replay(recording, reader, {**sizes, **scalars}, wide, device, differentiable)
        for name, fake in recording.inputs.items():
            given = inputs.get(name)
            if isinstance(given, Tensor):
                replay.values[id(fake)] = replay.widened(given.to(device))
        for real in recording.reals:
            replay.values[id(real.fake)] = replay.widened(real.now(device))
        for call in recording.calls:
            for output in call.outputs():
                if isinstance(output, Tensor):
                    replay.producers.setdefault(id(output), call)
        return replay

    def widened(self, tensor: Tensor) -> Tensor:
        return tensor.double() if self.wide and tensor.is_floating_point() else tensor

    def tensor(self, fake: Tensor) -> Tensor:
        """The value of a recorded tensor; runs the calls that it needs, in their order."""
        needed: list[Call] = []
        seen: set[int] = set()
        stack = [fake]
        while stack:
            top = stack.pop()
            if id(top) in self.values or id(top) in seen:
                continue
            seen.add(id(top))
            call = self.producers[id(top)]
            needed.append(call)
            stack += [a for a in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(a, Tensor)]
        position = {id(call): n for n, call in enumerate(self.recording.calls)}
        with default_dtype(torch.float64 if self.wide else torch.get_default_dtype()):
            for call in sorted({id(c): c for c in needed}.values(), key=lambda c: position[id(c)]):
                self._run(call)
        return self.values[id(fake)]

    def _run(self, call: Call) -> None:
        args = tuple(self._operand(a) for a in call.args)
        kwargs = {name: self._operand(a) for name, a in call.kwargs.items()}
        if _makes_from_numbers(call):
            kwargs["device"] = self.device
        if self.wide and call.name in _HALF_TO_FLOAT:
            args = (*args[:2], False)
        with torch.set_grad_enabled(self.differentiable):
            if call.func is torch.ops.aten.view.dtype:  # of the bits as they were recorded
                result = torch.Tensor.view(args[0].to(call.args[0].dtype), call.args[1])  # pyright: ignore
            elif call.func is torch.ops.aten.copy.default and self.differentiable:  # has no derivative of its own
                result = args[1].to(args[0].dtype).expand_as(args[0]).clone()  # pyright: ignore
            else:
                result = _result(call, args, kwargs)
        if self.wide and is_constant(call) and isinstance(result, Tensor) and result.is_floating_point():
            result = result.to(call.out.dtype)
        results = result if isinstance(result, (tuple, list)) else (result,)
        for fake, real in zip(call.outputs(), results, strict=True):
            if isinstance(fake, Tensor):
                self.values[id(fake)] = self.widened(real)

    def _operand(self, operand: Any) -> Any:
        if isinstance(operand, Tensor):
            return self.values[id(operand)]
        if isinstance(operand, (list, tuple)):
            return [self._operand(x) for x in operand]
        if isinstance(operand, torch.SymInt):
            return int(self.number(operand))  # `2 ** ceil(log2(n))` is a float where it is computed
        if isinstance(operand, (torch.SymFloat, torch.SymBool)):
            return self.number(operand)
        if isinstance(operand, torch.device):
            return self.device
        if self.wide and isinstance(operand, torch.dtype) and operand.is_floating_point:
            return torch.float64
        return operand

    def number(self, value: Any) -> int | float | bool:
        term = self.reader.term(value)
        if term not in self.numbers:
            self.numbers[term] = evaluate_number(term, self.sizes)
        return self.numbers[term]


def _result(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Errors: CU474 for what fake tensors were taken for and real ones are not, as an index of 8 bits."""
    try:
        return _OTHERWISE.get(call.func, call.func)(*args, **kwargs)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        fail("CU474", f"the reference fails on numbers: {type(error).__name__}: {first_line(error)}", call.span)


def _makes_from_numbers(call: Call) -> bool:
    """Does the call make a tensor of no other, on the device that it names?"""
    operands = pytree.tree_leaves((call.args, call.kwargs))
    named = any(a.name == "device" for a in call.func._schema.arguments)  # pyright: ignore[reportPrivateUsage]
    return named and not any(isinstance(a, Tensor) for a in operands)


def is_constant(call: Call) -> bool:
    """Does the call fill a tensor with a number that no size changes?"""
    return call.name in _FILLS and isinstance(call.arguments()[_FILLS[call.name]], (int, float))
