"""The memory of one launch: its tensors, with NaN wherever the kernel must not look, and where `Params` points at them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.launch.device import TensorMapRequest
from cubridge.backend.launch.params import FieldPlace, layout
from cubridge.backend.ptx.machine import TensorFlags
from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    LaunchContract,
    MapOfTensor,
    Role,
    TensorAddress,
    TileListAddress,
)
from cubridge.ir.diagnostics import CuError
from cubridge.ir.evaluate import evaluate_number

if TYPE_CHECKING:
    from torch import Tensor

_CAPTURE_ALIGN: Final = 4  # bytes; elements of captured tensors are read one by one
_COUNTER_ALIGN: Final = 4
_LIST_ALIGN: Final = 4
_FLAGS: Final = {
    Role.INPUT: TensorFlags.INPUT,
    Role.OUTPUT: TensorFlags.OUTPUT,
    Role.SUM: TensorFlags.OUTPUT | TensorFlags.STARTS_AS_IT_IS,
}


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """Memory of the launch: the bytes from the first element of its views to the last, with what lies between. Views are the
    tensors of the call that begin here; `used` is how much of the last axis holds values, the rest being padding."""

    name: str
    views: tuple[Tensor, ...]
    flags: int
    align: int
    used: int | None = None

    @property
    def bytes(self) -> int:
        return max(_span_bytes(view) for view in self.views)

    @property
    def is_output(self) -> bool:
        return bool(self.flags & TensorFlags.OUTPUT)

    def contents(self) -> bytes:
        """Inputs as they are, outputs NaN, counters 0."""
        if self.flags == TensorFlags.INPUT or self.flags & TensorFlags.STARTS_AS_IT_IS:
            return self.data()
        return (b"\xff" if self.is_output else b"\0") * self.bytes

    def data(self) -> bytes:
        """What the views hold; gaps between elements, and padding, are NaN."""
        raw = torch.full((self.bytes,), 0xFF, dtype=torch.uint8)
        for view in self.views:
            target, source = _lay_over(raw, view), view
            for axis, stride in enumerate(view.stride()):
                if stride == 0:  # an expanded axis: its elements are one
                    target, source = target.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
            if self.used is not None:
                target, source = target[..., : self.used], source[..., : self.used]
            target.copy_(source)
        return ctypes.string_at(raw.data_ptr(), raw.numel()) if raw.numel() else b""

    def take(self, data: bytes) -> None:
        """Take the elements of an output out of the bytes of a run."""
        if data:
            raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            self.views[0].copy_(_lay_over(raw, self.views[0]))


@dataclass(slots=True)
class _Placed:
    """Numbers the tensors of a launch, each once by its address. `keep`: those of the call."""

    keep: Sequence[Tensor]
    tensors: list[PlacedTensor] = field(default_factory=list[PlacedTensor])
    numbers: dict[int, int] = field(default_factory=dict[int, int])

    def number(self, address: int, name: str, flags: int, align: int, used: int | None = None) -> int:
        if address not in self.numbers:
            self.numbers[address] = len(self.tensors)
            views = tuple(t for t in self.keep if t.data_ptr() == address)
            self.tensors.append(PlacedTensor(name, views, flags, align, used))
        return self.numbers[address]


@dataclass(frozen=True, slots=True)
class LaunchMemory:
    """The tensors of one launch, and the offsets in `Params` of the pointers and tensor maps to them."""

    tensors: tuple[PlacedTensor, ...]
    pointers: tuple[tuple[int, int], ...]
    maps: tuple[tuple[int, int, TensorMapRequest], ...]

    @staticmethod
    def of(
        contract: LaunchContract,
        params: bytes,
        keep: Sequence[Tensor],
        take_map: Callable[[bytes], TensorMapRequest],
    ) -> LaunchMemory:
        """`keep`: the tensors that the addresses in `params` are of; `take_map`: the request behind a tensor map's bytes."""
        sizes = _sizes(contract, params)
        placed = _Placed(keep)
        pointers: list[tuple[int, int]] = []
        maps: list[tuple[int, int, TensorMapRequest]] = []
        for place in layout(contract)[0]:
            bits = params[place.offset : place.offset + place.field.c_type.bytes]
            address = int.from_bytes(bits, "little")
            match place.field.value:
                case MapOfTensor(name):
                    request = take_map(bits)
                    tensor = contract.tensor(contract.tensor_map(name).tensor)
                    index = placed.number(
                        request.tensor.data_ptr(), tensor.name, _FLAGS[tensor.role], tensor.align_bytes
                    )
                    maps.append((place.offset, index, request))
                case TensorAddress(name) if address:
                    tensor = contract.tensor(name)
                    pointers.append(
                        (place.offset, placed.number(address, name, _FLAGS[tensor.role], tensor.align_bytes))
                    )
                case CapturedAddress() as captured if address:
                    used = _used(captured, sizes)
                    pointers.append((place.offset, placed.number(address, captured.name, 0, _CAPTURE_ALIGN, used)))
                case TileListAddress(_, made) if address:
                    flags = TensorFlags.OUTPUT | TensorFlags.STARTS_AS_IT_IS if made else TensorFlags.INPUT
                    pointers.append((place.offset, placed.number(address, place.field.name, flags, _LIST_ALIGN)))
                case CounterAddress() if address:
                    flags = TensorFlags.STARTS_AND_ENDS_ZERO
                    pointers.append((place.offset, placed.number(address, place.field.name, flags, _COUNTER_ALIGN)))
                case _:
                    pass
        return LaunchMemory(tuple(placed.tensors), tuple(pointers), tuple(maps))

    def give_back(self, outputs: bytes) -> None:
        """Put the outputs of a run into the tensors of the call."""
        at = 0
        for tensor in self.tensors:
            if tensor.is_output:
                tensor.take(outputs[at : at + tensor.bytes])
                at += tensor.bytes


def _sizes(contract: LaunchContract, params: bytes) -> dict[str, int]:
    """The sizes that `Params` says: fields whose host value is just one."""
    places = layout(contract)[0]
    return {place.field.size: _integer(place, params) for place in places if place.field.size is not None}


def _integer(place: FieldPlace, params: bytes) -> int:
    return int.from_bytes(params[place.offset : place.offset + place.field.c_type.bytes], "little", signed=True)


def _used(captured: CapturedAddress, sizes: Mapping[str, int]) -> int | None:
    """The unpadded length of the last axis; None if there is no padding, or the sizes do not tell."""
    if captured.pad == 1 or not captured.extents:
        return None
    try:
        return int(evaluate_number(captured.extents[-1], sizes))
    except CuError:
        return None


def _span_bytes(view: Tensor) -> int:
    if view.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(view.shape, view.stride(), strict=True))
    return (last + 1) * view.element_size()


def _lay_over(raw: Tensor, view: Tensor) -> Tensor:
    """`raw` seen with the element type, shape and strides of `view`, whose span it may exceed."""
    whole = raw[: raw.numel() // view.element_size() * view.element_size()]
    return whole.view(view.dtype).as_strided(view.shape, view.stride())
