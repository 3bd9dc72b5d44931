"""What the runtime asks of a machine that runs kernels. A GPU is one; the emulator, which needs none, is another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.ir.contract import Instantiation, LaunchContract
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel before it is compiled: its text, its launch contract, and where its headers are."""

    source: SourceFile
    contract: LaunchContract
    include_dirs: tuple[Path, ...] = (KERNELS_DIR,)


@dataclass(frozen=True, slots=True)
class TensorMapRequest:
    """A TMA descriptor: axes innermost first. `strides_bytes` leaves out the innermost axis, whose elements are adjacent."""

    tensor: Tensor = field(repr=False)
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: blocks, threads of a block, bytes of dynamic shared memory of a block, the bytes of `Params`."""

    grid: int
    block: int
    shared_bytes: int
    params: bytes = field(repr=False)


class LoadedKernel(Protocol):
    """One instantiation, ready to launch."""

    @property
    def instantiation(self) -> Instantiation: ...

    @property
    def shared_bytes(self) -> int: ...

    @property
    def key(self) -> str:
        """Hash of all that the machine code was made from."""
        ...

    def launch(self, launch: Launch, keep: Sequence[Tensor]) -> None:
        """Start the kernel. `keep` are the tensors that it reads or writes, alive until it ends."""
        ...


class Device(Protocol):
    """Where kernels run."""

    @property
    def torch_device(self) -> torch.device:
        """Where the tensors of a call must be."""
        ...

    @property
    def constants(self) -> Mapping[str, int]:
        """Values of the names that host formulas may use besides sizes and macros: SM_COUNT, L2_BYTES (bytes)."""
        ...

    @property
    def makes_lists(self) -> bool:
        """Are lists of key tiles made by a kernel; else by torch."""
        ...

    def load(self, text: KernelText, dtype: DType, head_dim: int) -> LoadedKernel: ...

    @property
    def maps_can_be_kept(self) -> bool:
        """Is a descriptor good for more than one launch?"""
        ...

    def tensor_map(self, request: TensorMapRequest) -> bytes: ...

    def counters(self, count: int) -> Tensor:
        """`count` ints on the device, zero, that no launch in flight shares."""
        ...
