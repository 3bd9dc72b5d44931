"""What follows from the types, sizes, strides and numbers of a call, so that a repeated call only fills in addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from cubridge.backend.launch.arguments import inputs_of, misfit
from cubridge.backend.launch.captured import Conversion, conversion_of
from cubridge.backend.launch.device import Device, Launch, LoadedKernel, TensorMapRequest
from cubridge.backend.launch.packing import COUNTERS, Packing, captured_place, list_place, packing
from cubridge.ir.contract import CounterAddress, ElementType, LaunchContract, TensorArgument, TensorMapSpec
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.arguments import Scalar
    from cubridge.backend.launch.captured import CaptureValue
    from cubridge.backend.launch.tile_plan import ListPlan

MAX_INT = 2**31 - 1


def call_form(values: Sequence[object], align: int) -> tuple[object, ...]:
    """What a plan is for: two calls with equal forms differ in nothing but addresses, and what lies there.
    `align`: the largest alignment, bytes, that a contract asks of an address."""
    return tuple(
        [
            (v.dtype, v.device, v.shape, v.stride(), v.data_ptr() % align, v.is_neg())
            if isinstance(v, torch.Tensor)
            else (type(v), repr(v))
            for v in values
        ]
    )


# ---- parts of a plan -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MapPlan:
    """A TMA descriptor but for its address: see TensorMapRequest. `position` among the tensors of a launch. `made`: those that
    there were, by address, where the device lets them be used again."""

    position: int
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    made: dict[int, bytes] = field(default_factory=dict[int, bytes], compare=False, repr=False)

    def at(self, device: Device, tensor: Tensor) -> bytes:
        """The descriptor of a tensor. Errors: CU825."""
        address = tensor.data_ptr()
        if address in self.made:
            return self.made[address]
        request = TensorMapRequest(tensor, self.extents, self.strides_bytes, self.box, self.swizzle_bytes)
        made = device.tensor_map(request)
        if device.maps_can_be_kept:
            if len(self.made) >= _MOST_MAPS:
                self.made.clear()
            self.made[address] = made
        return made


_MOST_MAPS = 1024


@dataclass(frozen=True, slots=True)
class OutputForm:
    """An output that a call makes: contiguous."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How to launch calls of one form. A launch works on inputs, outputs, captured arrays, lists of key tiles and counters, in this
    order.

    `copies`: positions of inputs that must be copied, with name and reason. `conversions`: positions of captured tensors that the
    kernel cannot read as they are. `made`: outputs that the call does not give. `counters`: how many."""

    device: Device
    kernel: LoadedKernel
    copies: tuple[tuple[int, str, str], ...]
    conversions: tuple[tuple[int, Conversion], ...]
    made: tuple[OutputForm, ...]
    maps: tuple[MapPlan, ...]
    counters: int
    grid: int
    block: int
    packing: Packing
    lists: tuple[ListPlan, ...] = ()

    def new_outputs(self, like: Tensor) -> list[Tensor]:
        """Outputs without values, on the device of `like`."""
        return [like.new_empty(o.shape, dtype=o.dtype) for o in self.made]

    def launch(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], captured: Sequence[Tensor]) -> None:
        """Inputs and captured tensors in the order of the contract; outputs those that the plan is for."""
        tensors = [*inputs, *outputs, *captured]
        for position, _, _ in self.copies:
            tensors[position] = tensors[position].clone(memory_format=torch.contiguous_format)
        for position, convert in self.conversions:
            tensors[position] = convert(tensors[position])
        if self.lists:
            arrays = tensors[len(tensors) - len(captured) :]
            tensors += [lists.make(arrays) for lists in self.lists]
        if self.counters:
            tensors.append(self.device.counters(self.counters))
        maps = [m.at(self.device, tensors[m.position]) for m in self.maps]
        params = self.packing([t.data_ptr() for t in tensors], maps)
        self.kernel.launch(Launch(self.grid, self.block, self.kernel.shared_bytes, params), tensors)


@dataclass(frozen=True, slots=True)
class EmptyPlan:
    """No query, or no key: nothing is launched, and every row is one that sees no key. `fills`: what each output then holds."""

    made: tuple[OutputForm, ...]
    fills: tuple[float, ...]

    def new_outputs(self, like: Tensor) -> list[Tensor]:
        return [like.new_empty(o.shape, dtype=o.dtype) for o in self.made]

    def launch(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], captured: Sequence[Tensor]) -> None:
        del inputs, captured
        for output, fill in zip(outputs, self.fills, strict=True):
            output.fill_(fill)


Plan = CallPlan | EmptyPlan


# ---- making one ------------------------------------------------------------------------------------------------------


def make_plan(
    device: Device,
    contract: LaunchContract,
    kernel: LoadedKernel,
    names: Mapping[str, Scalar],
    tensors: tuple[Mapping[str, Tensor], Mapping[str, Tensor], Mapping[str, CaptureValue]],
    made: tuple[OutputForm, ...],
    lists: tuple[ListPlan, ...] = (),
) -> CallPlan:
    """`names`: values of every name in host formulas. `tensors`: inputs, outputs and captures of a call, by name; `made`: the
    forms of those outputs, where they are not the caller's; `lists`: how lists of key tiles are made. Errors: CU824 for a captured
    tensor that is missing or does not fit, CU826 for an output that the kernel cannot write where it lies, or a grid that no launch
    takes."""
    inputs, outputs, captures = tensors
    _check_outputs(contract, outputs)
    copies = _copies(contract, inputs)
    grid = int(evaluate_number(contract.grid, names))
    if not 0 < grid <= MAX_INT:
        raise CuError(Diagnostic("CU826", f"{grid} blocks; a launch takes 1 to 2^31 - 1", contract.grid.span))
    halves = {**inputs, **outputs}
    strides = {n: contiguous_strides(t) if n in copies else t.stride() for n, t in halves.items()}
    counters = _counters(contract)
    of_data = (*map(captured_place, contract.captured), *map(list_place, contract.tile_lists))
    order = (*halves, *of_data, *([COUNTERS] if counters else []))
    places = {name: at for at, name in enumerate(order)}
    maps = [_map_plan(m, places[m.tensor], halves[m.tensor], strides[m.tensor], names) for m in contract.tensor_maps]
    conversions = [(f, conversion_of(f, captures, names, device.torch_device)) for f in contract.captured]
    return CallPlan(
        device=device,
        kernel=kernel,
        copies=tuple((places[name], name, reason) for name, reason in copies.items()),
        conversions=tuple((places[captured_place(f)], c) for f, c in conversions if c is not None),
        made=made,
        maps=tuple(maps),
        counters=counters,
        grid=grid,
        block=int(evaluate_number(contract.block, names)),
        packing=packing(contract, strides, names, places),
        lists=lists,
    )


def _check_outputs(contract: LaunchContract, outputs: Mapping[str, Tensor]) -> None:
    for name, output in outputs.items():
        if reason := misfit(output, contract.tensor(name), mapped=False):
            raise CuError(Diagnostic("CU826", f"the output `{name}` cannot be written in place: {reason}"))


def _copies(contract: LaunchContract, inputs: Mapping[str, Tensor]) -> dict[str, str]:
    """Inputs that must be copied, with the reason."""
    mapped = {m.tensor for m in contract.tensor_maps}
    reasons = {a.name: misfit(inputs[a.name], a, a.name in mapped) for a in inputs_of(contract)}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _counters(contract: LaunchContract) -> int:
    if contract.equal_work:
        return 0
    return next((f.value.count for f in contract.params if isinstance(f.value, CounterAddress)), 0)


def output_forms(
    contract: LaunchContract, wanted: Sequence[str], sizes: Mapping[str, int], half: torch.dtype
) -> tuple[OutputForm, ...]:
    """What a call makes: the outputs of `wanted`, and those that are not optional."""
    return tuple(output_form(a, sizes, half) for a in _made(contract, wanted))


def _made(contract: LaunchContract, wanted: Sequence[str]) -> list[TensorArgument]:
    return [t for t in contract.tensors if t not in inputs_of(contract) and (t.name in wanted or not t.optional)]


def output_form(argument: TensorArgument, sizes: Mapping[str, int], half: torch.dtype) -> OutputForm:
    shape = tuple(int(evaluate_number(e, sizes)) for e in argument.shape)
    return OutputForm(argument.name, shape, half if argument.element is ElementType.HALF else torch.float32)


def contiguous_strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides of a contiguous copy."""
    steps = accumulate((max(n, 1) for n in reversed(tensor.shape[1:])), lambda a, b: a * b, initial=1)
    return tuple(reversed(list(steps)))


def _map_plan(
    spec: TensorMapSpec, position: int, tensor: Tensor, strides: tuple[int, ...], names: Mapping[str, Scalar]
) -> MapPlan:
    """Axes innermost first. An axis of one element gets a stride that the hardware takes."""
    sizes, legal, width = tuple(tensor.shape), list(strides), tensor.element_size()
    for axis in range(len(sizes) - 2, -1, -1):
        if sizes[axis] == 1:
            legal[axis] = sizes[axis + 1] * legal[axis + 1]
    box = tuple(int(evaluate_number(b, names)) for b in spec.box)
    strides_bytes = tuple(s * width for s in reversed(legal[:-1]))
    return MapPlan(position, tuple(reversed(sizes)), strides_bytes, box, spec.swizzle_bytes)
