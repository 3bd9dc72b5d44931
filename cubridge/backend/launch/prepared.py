"""Calls of one form, prepared: what is checked of their values, where captured tensors come from, and the plan of the launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cubridge.backend.launch.capturing import is_capturing

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.call_plan import Plan
    from cubridge.ir.requirement import Requirement

    Inputs = tuple[Tensor, Tensor, Tensor]
    Values = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """`captured`: from q, k, v and the values of a call to the captured tensors in the order of the contract. `order`: the
    outputs of the reference among those of the kernel."""

    plan: Plan
    captured: Callable[[Inputs, Values], Sequence[Tensor]]
    checks: ValueChecks | None
    order: tuple[int, ...]

    def __call__(self, inputs: Inputs, values: Values) -> list[Tensor]:
        """Errors: CU490 for values that the kernel cannot take, CU825 from the driver."""
        if self.checks is not None:
            self.checks(inputs, values)
        outputs = self.plan.new_outputs(inputs[0])
        self.plan.launch(inputs, outputs, self.captured(inputs, values))
        return [outputs[at] for at in self.order]


# ---- where captured tensors come from --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Handed:
    """Every captured tensor is a value of the call: `positions`."""

    positions: tuple[int, ...]

    def __call__(self, inputs: Inputs, values: Values) -> Sequence[Tensor]:
        del inputs
        return [values[at] for at in self.positions]  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, slots=True)
class Mixed:
    """`sources`, in the order of the contract: a position among the values, or the name of a tensor that `compute` makes anew in
    the stream of each call, of what `tables` has among others, or that `tables` has."""

    sources: tuple[int | str, ...]
    compute: Callable[[Inputs, Values, Mapping[str, Tensor]], Mapping[str, Tensor]]
    tables: Tables

    def __call__(self, inputs: Inputs, values: Values) -> Sequence[Tensor]:
        kept = self.tables(inputs, values)
        made = {**kept, **self.compute(inputs, values, kept)}
        return [made[s] if isinstance(s, str) else values[s] for s in self.sources]  # pyright: ignore[reportReturnType]


@dataclass(slots=True)
class Tables:
    """Tensors that follow from the sizes of a form. They are made once, in the stream that first asks for them; other streams wait
    for that. A CUDA graph that is captured makes its own: it may outlive these."""

    device: torch.device
    make: Callable[[Inputs, Values], Mapping[str, Tensor]]
    _made: Mapping[str, Tensor] | None = None
    _stream: torch.cuda.Stream | None = None
    _ready: Any = None

    def __call__(self, inputs: Inputs, values: Values) -> Mapping[str, Tensor]:
        if is_capturing(self.device):
            return self.make(inputs, values)
        if self._made is None:
            self._made = self.make(inputs, values)
            if self.device.type == "cuda":
                self._stream = torch.cuda.current_stream(self.device)
                self._ready = self._stream.record_event()
        elif self._stream is not None and self._ready is not None:
            self._follow(self._made, self._stream, self._ready)
        return self._made

    def _follow(self, made: Mapping[str, Tensor], stream: torch.cuda.Stream, ready: Any) -> None:
        current = torch.cuda.current_stream(self.device)
        if current != stream:
            current.wait_event(ready)
            for tensor in made.values():
                tensor.record_stream(current)


# ---- checks of values ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ValueChecks:
    """Requirements on what tensors hold. On a GPU they are read once for each version of each storage, since reading waits for the
    device; what moves no version counter (`.data`, another library, a kernel of the user) is not seen, and then kernels clamp what
    they index with. While a CUDA graph is captured, and of tensors that count no versions, the device asserts them."""

    device: torch.device
    make: Callable[[Inputs, Values], tuple[Requirement, ...]]
    reads_inputs: bool
    _seen: dict[tuple[object, ...], tuple[StorageWeakRef, ...]] = field(default_factory=dict)

    def __call__(self, inputs: Inputs, values: Values) -> None:
        """Errors: CU490."""
        if self.device.type != "cuda":
            self._check(inputs, values)
            return
        read = [v for v in ((*inputs, *values) if self.reads_inputs else values) if isinstance(v, torch.Tensor)]
        if is_capturing(self.device) or any(t.is_inference() for t in read):
            self._assert_on_device(inputs, values)
            return
        key = tuple([(t.untyped_storage().data_ptr(), t.data_ptr(), t._version) for t in read])
        seen = self._seen.get(key)
        if seen is not None and not any(storage.expired() for storage in seen):
            return
        self._check(inputs, values)
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen[key] = tuple(StorageWeakRef(t.untyped_storage()) for t in read)

    def _check(self, inputs: Inputs, values: Values) -> None:
        """Waits for the device once, where all hold."""
        requirements = self.make(inputs, values)
        if not bool(torch.stack([r.holds for r in requirements]).all()):
            for requirement in requirements:
                requirement.check()

    def _assert_on_device(self, inputs: Inputs, values: Values) -> None:
        for requirement in self.make(inputs, values):
            torch.ops.aten._assert_async.msg(requirement.holds, requirement.what)


_MOST_SEEN: Final = 64
