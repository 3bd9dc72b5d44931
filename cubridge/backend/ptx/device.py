"""The CPU as a machine that runs what NVRTC makes of a kernel's text: a `Device` for the launcher as a GPU is."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.compile.compiler import listed_instantiations
from cubridge.backend.launch.device import KernelText, Launch, TensorMapRequest
from cubridge.backend.ptx.compiled import machine_of
from cubridge.backend.ptx.launch import LaunchMemory
from cubridge.backend.ptx.machine import Grid, Machine, PtxLaunch, Schedule, TensorMap, TensorMemory
from cubridge.ir.contract import Instantiation, LaunchContract, Role
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from torch import Tensor

SCHEDULES: Final = tuple(Schedule)
ONE_SCHEDULE: Final = SCHEDULES[:1]
"""Where order is not judged."""


@dataclass(slots=True)
class PtxDevice:
    """Each launch runs once per schedule, and all must agree in every bit.

    `blocks`: what SM_COUNT is, so how many blocks a persistent kernel gets. `macros` overrule the contract's choices. `check`: what
    refuses a text before it is compiled. `makes_lists`: of key tiles, by the kernel that makes them on a GPU, another text."""

    schedules: tuple[Schedule, ...] = SCHEDULES
    blocks: int = 2
    timeout_s: float = 60.0
    macros: Mapping[str, int] = field(default_factory=dict)
    check: Callable[[KernelText, Instantiation], None] | None = None
    makes_lists: bool = False
    _maps: dict[bytes, TensorMapRequest] = field(default_factory=dict, init=False, repr=False)
    _handles: Iterator[int] = field(default_factory=lambda: count(1), init=False, repr=False)

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def constants(self) -> Mapping[str, int]:
        return {"SM_COUNT": self.blocks, "L2_BYTES": 1 << 25}

    def load(self, text: KernelText, dtype: DType, head_dim: int) -> PtxKernel:
        """The first form that the contract lists, with `macros` overruled, compiled to PTX.
        Errors: CU805, CU809, CU830, CU831, CU838, CU839; those of `check`."""
        first = listed_instantiations(text.contract, dtype, head_dim)[0]
        form = Instantiation(dtype, tuple((name, self.macros.get(name, value)) for name, value in first.macros))
        if self.check is not None:
            self.check(text, form)
        machine, key = machine_of(text, form)
        return PtxKernel(self, text.contract, form, machine, key)

    @property
    def maps_can_be_kept(self) -> bool:
        return False

    def tensor_map(self, request: TensorMapRequest) -> bytes:
        """A handle, good for one launch, which puts the machine's own descriptor in its place."""
        handle = struct.pack("<Q120x", next(self._handles))
        self._maps[handle] = request
        return handle

    def take_map(self, handle: bytes) -> TensorMapRequest:
        return self._maps.pop(handle)

    def counters(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class PtxKernel:
    """One instantiation of a kernel text, as PTX."""

    device: PtxDevice
    contract: LaunchContract
    instantiation: Instantiation
    machine: Machine
    key: str

    @property
    def shared_bytes(self) -> int:
        return int(evaluate_number(self.contract.shared_bytes, dict(self.instantiation.macros)))

    def launch(self, launch: Launch, keep: Sequence[Tensor]) -> None:
        """Run the launch under every schedule; the outputs are among `keep`.
        Errors: CU832 to CU837, of the first schedule that has one; CU833 where schedules give different outputs, but for sums, to
        which blocks may add in any order."""
        memory = LaunchMemory.of(self.contract, launch.params, keep, self.device.take_map)
        arranged = _arranged(memory, launch)

        def run(schedule: Schedule) -> tuple[bytes, ...]:
            return self.machine.run(arranged, schedule, self.device.timeout_s)

        with ThreadPoolExecutor(len(self.device.schedules)) as pool:
            outputs = list(pool.map(run, self.device.schedules))
        ordered = [n for n, t in enumerate(t for t in memory.tensors if t.is_output) if not self._is_sum(t.name)]
        if any(found[n] != outputs[0][n] for found in outputs for n in ordered):
            raise CuError(Diagnostic("CU833", "emulator: race: the outputs differ from schedule to schedule"))
        memory.give_back(b"".join(outputs[0]))

    def _is_sum(self, tensor: str) -> bool:
        return any(t.name == tensor and t.role is Role.SUM for t in self.contract.tensors)


def _arranged(memory: LaunchMemory, launch: Launch) -> PtxLaunch:
    tensors = tuple(TensorMemory(t.name, t.contents(), t.flags, t.align) for t in memory.tensors)
    maps = tuple(
        TensorMap(offset, tensor, r.tensor.element_size(), r.swizzle_bytes, r.extents, r.strides_bytes, r.box)
        for offset, tensor, r in memory.maps
    )
    grid = Grid((launch.grid, 1, 1), (launch.block, 1, 1), launch.shared_bytes)
    return PtxLaunch(grid, launch.params, tensors, memory.pointers, maps)
