"""Runs a kernel's text on the CPU, a `Device` for the launcher as a GPU is. kernels/emulate/runtime.cpp says what it judges."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.compile import listed_instantiations
from cubridge.backend.device import KernelText, Launch, TensorMapRequest
from cubridge.backend.emulate_build import Program, build_program, default_cache_dir
from cubridge.backend.emulate_fault import fault_of
from cubridge.backend.params import FieldPlace, layout
from cubridge.ir.contract import (
    CapturedAddress,
    CounterAddress,
    Instantiation,
    LaunchContract,
    MapOfTensor,
    Role,
    TensorAddress,
)
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from torch import Tensor

SCHEDULES: Final = (0, 1)
"""Schedules that one check runs. 0: a warp runs as far as it can, copies land last; others: drawn from the number. Even ones put
tensors flush with their ends, odd ones with their starts."""

_OUTPUT, _ZERO = 1, 2
_HEADER, _TENSOR, _POINTER, _MAP = "<8s4I4i", "<48s2Q2I", "<2I", "<2I4i4i4q"
_CAPTURE_ALIGN: Final = 4  # bytes; elements of captured tensors are read one by one


def emulated_instantiation(
    contract: LaunchContract, dtype: DType, head_dim: int, fixed: Mapping[str, int]
) -> Instantiation:
    """The first form that the contract lists, with macros overruled. Errors: CU809."""
    first = listed_instantiations(contract, dtype, head_dim)[0]
    return Instantiation(dtype, tuple((name, fixed.get(name, value)) for name, value in first.macros))


@dataclass(slots=True)
class EmulatorDevice:
    """The CPU as a machine that runs kernels. Each launch runs once per schedule, and all must agree.

    `blocks`: what SM_COUNT is, so how many blocks a persistent kernel gets. `macros` overrule the contract's choices."""

    cache_dir: Path = field(default_factory=default_cache_dir)
    schedules: tuple[int, ...] = SCHEDULES
    blocks: int = 2
    timeout_s: float = 60.0
    macros: Mapping[str, int] = field(default_factory=dict)
    _maps: dict[bytes, TensorMapRequest] = field(default_factory=dict, init=False, repr=False)

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def constants(self) -> Mapping[str, int]:
        return {"SM_COUNT": self.blocks, "L2_BYTES": 1 << 25}

    def load(self, text: KernelText, dtype: DType, head_dim: int) -> EmulatedKernel:
        form = emulated_instantiation(text.contract, dtype, head_dim, self.macros)
        program = build_program(text.source, text.contract, form, text.include_dirs, self.cache_dir)
        return EmulatedKernel(self, text.contract, form, program)

    def tensor_map(self, request: TensorMapRequest) -> bytes:
        """A handle; the launch replaces it by the emulator's own descriptor."""
        handle = struct.pack("<Q120x", len(self._maps) + 1)
        self._maps[handle] = request
        return handle

    def take_map(self, handle: bytes) -> TensorMapRequest:
        return self._maps[handle]

    def counters(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class EmulatedKernel:
    """One instantiation of a kernel text, built for the CPU."""

    device: EmulatorDevice
    contract: LaunchContract
    instantiation: Instantiation
    program: Program

    @property
    def key(self) -> str:
        return self.program.key

    @property
    def shared_bytes(self) -> int:
        return int(evaluate_number(self.contract.shared_bytes, dict(self.instantiation.macros)))

    def launch(self, launch: Launch, keep: Sequence[Tensor]) -> None:
        """Run the launch under every schedule; the outputs are among `keep`.
        Errors: CU832 to CU837, and CU833 where schedules give different outputs."""
        memory = _Memory.of(self.contract, launch.params, keep, self.device)
        first: bytes | None = None
        for schedule in self.device.schedules:
            outputs = self._run(memory, launch, schedule)
            if first is not None and outputs != first:
                raise CuError(Diagnostic("CU833", "emulator: race: the outputs differ from schedule to schedule"))
            first = outputs
        memory.give_back(first or b"")

    def _run(self, memory: _Memory, launch: Launch, schedule: int) -> bytes:
        with tempfile.TemporaryDirectory(prefix="cubridge-") as folder:
            launch_file, output_file = Path(folder, "launch"), Path(folder, "output")
            launch_file.write_bytes(memory.file(launch, schedule))
            command = [str(self.program.path), str(launch_file), str(output_file)]
            try:
                result = subprocess.run(
                    command, capture_output=True, text=True, timeout=self.device.timeout_s, check=False
                )
            except subprocess.TimeoutExpired as error:
                message = f"emulator: the kernel does not end within {self.device.timeout_s:g} s"
                raise CuError(Diagnostic("CU837", message), exit_code=6) from error
            if result.returncode != 0:
                raise fault_of(self.program, result.returncode, result.stderr)
            return output_file.read_bytes()


# ---- the launch file -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tensor of the launch: the bytes from its first element to its last, with what lies between."""

    name: str
    tensor: Tensor
    flags: int
    align: int

    @property
    def bytes(self) -> int:
        if self.tensor.numel() == 0:
            return 0
        last = sum((n - 1) * s for n, s in zip(self.tensor.shape, self.tensor.stride(), strict=True))
        return (last + 1) * self.tensor.element_size()

    def data(self) -> bytes:
        """Contents of an input; gaps between its elements are NaN."""
        raw = torch.full((self.bytes,), 0xFF, dtype=torch.uint8)
        target, source = self._view(raw), self.tensor
        for axis, stride in enumerate(self.tensor.stride()):
            if stride == 0:  # an expanded axis: its elements are one
                target, source = target.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
        target.copy_(source)
        return _raw_bytes(raw)

    def fill(self, raw: Tensor) -> None:
        """Take the elements out of the bytes of a run."""
        self.tensor.copy_(self._view(raw))

    def _view(self, raw: Tensor) -> Tensor:
        return raw.view(self.tensor.dtype).as_strided(self.tensor.shape, self.tensor.stride())


@dataclass(frozen=True, slots=True)
class _Memory:
    """The tensors of one launch, and where `Params` points at them."""

    tensors: tuple[_Placed, ...]
    pointers: tuple[tuple[int, int], ...]  # offset in Params, tensor
    maps: tuple[tuple[int, int, TensorMapRequest], ...]

    @staticmethod
    def of(contract: LaunchContract, params: bytes, keep: Sequence[Tensor], device: EmulatorDevice) -> _Memory:
        by_address = {t.data_ptr(): t for t in keep}
        tensors: list[_Placed] = []
        numbers: dict[int, int] = {}  # address -> index in tensors
        pointers: list[tuple[int, int]] = []
        maps: list[tuple[int, int, TensorMapRequest]] = []

        def number(placed: _Placed) -> int:
            address = placed.tensor.data_ptr()
            if address not in numbers:
                numbers[address] = len(tensors)
                tensors.append(placed)
            return numbers[address]

        for place in layout(contract)[0]:
            bits = params[place.offset : place.offset + place.field.c_type.bytes]
            if isinstance(place.field.value, MapOfTensor):
                request = device.take_map(bits)
                name = contract.tensor_map(place.field.value.name).tensor
                maps.append((place.offset, number(_Placed(name, request.tensor, 0, 16)), request))
            elif place.field.c_type.is_pointer and any(bits):
                tensor = by_address[int.from_bytes(bits, "little")]
                pointers.append((place.offset, number(_placed(contract, place, tensor))))
        return _Memory(tuple(tensors), tuple(pointers), tuple(maps))

    def file(self, launch: Launch, schedule: int) -> bytes:
        """The launch as kernels/emulate/launch.h reads it."""
        head = struct.pack(
            _HEADER,
            b"CUEMU001",
            len(self.tensors),
            len(self.pointers),
            len(self.maps),
            len(launch.params),
            launch.grid,
            launch.block,
            launch.shared_bytes,
            schedule,
        )
        tail = b"".join(struct.pack(_POINTER, *p) for p in self.pointers)
        tail += b"".join(_map_record(*m) for m in self.maps) + launch.params
        at = _aligned(len(head) + len(self.tensors) * struct.calcsize(_TENSOR) + len(tail))
        records: list[bytes] = []
        blobs: list[bytes] = []
        for tensor in self.tensors:
            blob = b"" if tensor.flags else tensor.data()
            records.append(
                struct.pack(
                    _TENSOR, tensor.name.encode()[:47], tensor.bytes, at if blob else 0, tensor.flags, tensor.align
                )
            )
            blobs.append(blob.ljust(_aligned(len(blob)), b"\0"))
            at += len(blobs[-1])
        start = head + b"".join(records) + tail
        return start.ljust(_aligned(len(start)), b"\0") + b"".join(blobs)

    def give_back(self, outputs: bytes) -> None:
        at = 0
        for tensor in self.tensors:
            if tensor.flags & _OUTPUT:
                chunk = bytearray(outputs[at : at + tensor.bytes])
                if chunk:
                    tensor.fill(torch.frombuffer(chunk, dtype=torch.uint8))
                at += tensor.bytes


def _placed(contract: LaunchContract, place: FieldPlace, tensor: Tensor) -> _Placed:
    match place.field.value:
        case TensorAddress(name):
            argument = contract.tensor(name)
            return _Placed(name, tensor, _OUTPUT if argument.role is Role.OUTPUT else 0, argument.align_bytes)
        case CapturedAddress(name):
            return _Placed(name, tensor, 0, _CAPTURE_ALIGN)
        case CounterAddress():
            return _Placed(place.field.name, tensor, _ZERO, 4)
        case _:
            raise AssertionError(f"`{place.field.name}` is no address")


def _map_record(offset: int, tensor: int, request: TensorMapRequest) -> bytes:
    width = request.tensor.element_size()
    return struct.pack(_MAP, offset, tensor, *request.extents, *request.box, width, *request.strides_bytes)


def _raw_bytes(tensor: Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel()) if tensor.numel() else b""


def _aligned(n: int) -> int:
    return -(-n // 16) * 16
