"""A device that runs nothing: it records what it is asked to launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cubridge.backend.compile.compiler import listed_instantiations
from cubridge.backend.launch.device import KernelText, Launch, TensorMapRequest
from cubridge.ir.contract import Instantiation
from cubridge.ir.types import DType


@dataclass
class FakeKernel:
    device: FakeDevice
    instantiation: Instantiation
    key: str
    shared_bytes: int = 4096

    def launch(self, launch: Launch, keep: Sequence[Tensor]) -> None:
        self.device.launches.append(launch)
        self.device.kept.append(list(keep))
        if self.device.effect is not None:
            self.device.effect(keep)


@dataclass
class FakeDevice:
    """`effect` stands for what a kernel does to the tensors of a launch."""

    effect: Callable[[Sequence[Tensor]], None] | None = None
    torch_device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    constants: Mapping[str, int] = field(default_factory=lambda: {"SM_COUNT": 132, "L2_BYTES": 50 << 20})
    makes_lists: bool = False
    launches: list[Launch] = field(default_factory=list)
    kept: list[list[Tensor]] = field(default_factory=list)
    maps: list[TensorMapRequest] = field(default_factory=list)
    loads: list[tuple[DType, int]] = field(default_factory=list)
    maps_can_be_kept: bool = True

    def load(self, text: KernelText, dtype: DType, head_dim: int) -> FakeKernel:
        self.loads.append((dtype, head_dim))
        form = listed_instantiations(text.contract, dtype, head_dim)[0]
        return FakeKernel(self, form, f"{text.source.digest}-{form}")

    def tensor_map(self, request: TensorMapRequest) -> bytes:
        self.maps.append(request)
        return bytes([len(self.maps) % 256]) * 128

    def counters(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32)
