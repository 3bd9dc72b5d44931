"""What follows from the types, sizes, strides and scalars of a call, so that a repeated call only fills in addresses."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cubridge.backend.launch.arguments import inputs_of, misfit
from cubridge.backend.launch.device import Launch, LoadedKernel, TensorMapRequest
from cubridge.backend.launch.params import layout, pack
from cubridge.ir.contract import (
    HostValue,
    LaunchContract,
    MapOfTensor,
    ParamField,
    TensorAddress,
    TensorMapSpec,
    TensorStride,
)
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number

if TYPE_CHECKING:
    from torch import Tensor

    from cubridge.backend.launch.arguments import Scalar

MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CallForm:
    """What a plan is for. Two calls with equal forms differ in nothing but addresses and data."""

    tensors: tuple[tuple[object, ...], ...]
    scalars: tuple[tuple[str, type, Scalar], ...]


def call_form(tensors: Mapping[str, Tensor], scalars: Mapping[str, Scalar], align: int) -> CallForm:
    """`align`: the largest alignment, bytes, that the contract asks of an address."""
    seen = tuple(
        (name, t.dtype, t.device, t.shape, t.stride(), t.data_ptr() % align if align else 0)
        for name, t in tensors.items()
    )
    return CallForm(seen, tuple((name, type(value), value) for name, value in scalars.items()))


@dataclass(frozen=True, slots=True)
class MapPlan:
    """A TMA descriptor but for its address: see TensorMapRequest."""

    tensor: str
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int

    def request(self, tensors: Mapping[str, Tensor]) -> TensorMapRequest:
        return TensorMapRequest(tensors[self.tensor], self.extents, self.strides_bytes, self.box, self.swizzle_bytes)


@dataclass(frozen=True, slots=True)
class CallPlan:
    """`copies`: inputs that must be copied, with the reason. `names`: values of every name in host formulas. `maps`: by name.
    `template`: the bytes of `Params` with zeros at `dynamic`, the fields that differ from call to call."""

    kernel: LoadedKernel
    names: Mapping[str, Scalar]
    copies: Mapping[str, str]
    maps: Mapping[str, MapPlan]
    grid: int
    block: int
    template: bytes = field(repr=False)
    dynamic: tuple[tuple[int, ParamField], ...]

    def launch(self, values: Mapping[str, int | bytes]) -> Launch:
        """A launch with the dynamic fields filled in, by field name: addresses, and the bytes of tensor maps."""
        params = bytearray(self.template)
        for offset, place in self.dynamic:
            value = values[place.name]
            if isinstance(value, bytes):
                params[offset : offset + len(value)] = value
            else:
                struct.pack_into("<Q", params, offset, value)
        return Launch(self.grid, self.block, self.kernel.shared_bytes, bytes(params))


def make_plan(
    contract: LaunchContract,
    kernel: LoadedKernel,
    names: Mapping[str, Scalar],
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
) -> CallPlan:
    """Errors: CU826 for an output that the kernel cannot write where it lies, or a grid that no launch takes."""
    for name, output in outputs.items():
        if reason := misfit(output, contract.tensor(name), mapped=False):
            raise CuError(Diagnostic("CU826", f"the output `{name}` cannot be written in place: {reason}"))
    mapped = {m.tensor for m in contract.tensor_maps}
    copies = {
        a.name: reason
        for a in inputs_of(contract)
        if (reason := misfit(inputs[a.name], a, a.name in mapped)) is not None
    }
    grid = int(evaluate_number(contract.grid, names))
    if not 0 < grid <= MAX_INT:
        raise CuError(Diagnostic("CU826", f"{grid} blocks; a launch takes 1 to 2^31 - 1", contract.grid.span))
    strides = {n: contiguous_strides(t) if n in copies else t.stride() for n, t in (*inputs.items(), *outputs.items())}
    values = {f.name: _static_value(f, strides, names) for f in contract.params}
    dynamic = tuple((p.offset, p.field) for p in layout(contract)[0] if values[p.field.name] is None)
    blank = {f.name: bytes(f.c_type.bytes) for _, f in dynamic}
    template = pack(contract, {**blank, **{n: v for n, v in values.items() if v is not None}})
    block = int(evaluate_number(contract.block, names))
    tensors = {**inputs, **outputs}
    maps = {m.name: _map_plan(m, tensors[m.tensor], strides[m.tensor], names) for m in contract.tensor_maps}
    return CallPlan(kernel, names, copies, maps, grid, block, template, dynamic)


def contiguous_strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides of a contiguous copy."""
    strides: list[int] = []
    step = 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _map_plan(spec: TensorMapSpec, tensor: Tensor, strides: tuple[int, ...], names: Mapping[str, Scalar]) -> MapPlan:
    """Axes innermost first. An axis of one element gets a stride that the hardware takes."""
    sizes, legal, width = tuple(tensor.shape), list(strides), tensor.element_size()
    for axis in range(len(sizes) - 2, -1, -1):
        if sizes[axis] == 1:
            legal[axis] = sizes[axis + 1] * legal[axis + 1]
    box = tuple(int(evaluate_number(b, names)) for b in spec.box)
    strides_bytes = tuple(s * width for s in reversed(legal[:-1]))
    return MapPlan(spec.tensor, tuple(reversed(sizes)), strides_bytes, box, spec.swizzle_bytes)


def _static_value(
    place: ParamField, strides: Mapping[str, tuple[int, ...]], names: Mapping[str, Scalar]
) -> int | float | None:
    """The value of a field that the form decides; None for one that each call decides."""
    match place.value:
        case TensorStride(name, axis):
            return strides[name][axis] if name in strides else 0
        case HostValue(expr):
            value = evaluate_number(expr, names)
            assert isinstance(value, (bool, int, float))
            return value
        case TensorAddress(name) if name not in strides:
            return 0
        case MapOfTensor() | TensorAddress() | _:
            return None
