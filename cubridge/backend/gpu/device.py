"""The GPU as a device: machine code is loaded through cuda-core and launched on torch's current stream."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cubridge.backend.compile.compiler import Compiled, compile_best
from cubridge.backend.compile.targets import Target, target_for_device
from cubridge.backend.gpu.driver import (
    checked,
    cuda_driver,
    current_stream,
    encode_tensor_map,
    imported,
    is_thread_ready,
    make_thread_ready,
    no_gpu,
)
from cubridge.backend.launch.device import KernelText, Launch, TensorMapRequest
from cubridge.ir.contract import Instantiation
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A kernel in a GPU's memory. `library` keeps it loaded; `start` is the driver's launch."""

    compiled: Compiled
    library: object = field(repr=False)
    function: Any = field(repr=False)
    start: Any = field(repr=False)
    device: torch.device

    @property
    def instantiation(self) -> Instantiation:
        return self.compiled.instantiation

    @property
    def shared_bytes(self) -> int:
        return self.compiled.shared_bytes

    @property
    def key(self) -> str:
        return self.compiled.key

    def launch(self, launch: Launch, keep: Sequence[Tensor]) -> None:
        """Start on torch's current stream; the caching allocator keeps memory of `keep` in the order of that stream.
        Errors: CU825 from the driver."""
        del keep
        if torch.cuda.current_device() == self.device.index and is_thread_ready(self.device):
            self._launch(launch)
            return
        with torch.cuda.device(self.device):
            make_thread_ready(self.device)
            self._launch(launch)

    def _launch(self, launch: Launch) -> None:
        params = ctypes.create_string_buffer(launch.params, len(launch.params))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        # cuda-core's `launch` takes numbers and pointers only; a struct by value goes through the driver call it makes.
        (status,) = self.start(
            self.function, launch.grid, 1, 1, launch.block, 1, 1, launch.shared_bytes, current_stream(self.device),
            ctypes.addressof(arguments), 0,
        )  # fmt: skip
        if status.value:
            checked(f"launching `{self.compiled.entry}`", (status,))


class Gpu:
    """One CUDA device. Compiled kernels stay loaded for the life of this object."""

    def __init__(self, device: torch.device, cache_dir: Path | None = None) -> None:
        properties = torch.cuda.get_device_properties(device)
        self.torch_device = device
        self.capability: tuple[int, int] = (properties.major, properties.minor)
        self.constants: Mapping[str, int] = {
            "SM_COUNT": properties.multi_processor_count,
            "L2_BYTES": properties.L2_cache_size,
        }
        self.makes_lists = True
        self._cache_dir = cache_dir
        self._loaded: dict[tuple[str, Instantiation, int], GpuKernel] = {}
        self._counters: dict[tuple[int, int], Tensor] = {}

    def target(self, text: KernelText) -> Target:
        return target_for_device(text.contract.arch, self.capability)

    def load(self, text: KernelText, dtype: DType, head_dim: int) -> GpuKernel:
        """Compile (or take from the cache) and load. Errors: as compile_best; CU802 for a kernel of another GPU."""
        compiled = compile_best(
            text.source, text.contract, dtype, head_dim, self.target(text).name,
            include_dirs=text.include_dirs, cache_dir=self._cache_dir,
        )  # fmt: skip
        return self.load_compiled(compiled)

    def load_compiled(self, compiled: Compiled) -> GpuKernel:
        """Errors: CU820 without cuda-core, CU825 from the driver."""
        form = (compiled.key, compiled.instantiation, compiled.shared_bytes)  # of one text there may be several
        if form not in self._loaded:
            self._loaded[form] = self._load(compiled)
        return self._loaded[form]

    @property
    def maps_can_be_kept(self) -> bool:
        return True

    def tensor_map(self, request: TensorMapRequest) -> bytes:
        """The 128 bytes of a CUtensorMap; elements outside the tensor are read as 0. Errors: CU825."""
        return encode_tensor_map(request)

    def counters(self, count: int) -> Tensor:
        """Zeros. Launches on one stream follow one another and leave them zero, so each stream has its own; a launch that
        a CUDA graph records gets new ones, since the graph may run beside anything."""
        if torch.cuda.is_current_stream_capturing():
            return torch.zeros(count, dtype=torch.int32, device=self.torch_device)
        key = (current_stream(self.torch_device), count)
        if key not in self._counters:
            self._counters[key] = torch.zeros(count, dtype=torch.int32, device=self.torch_device)
        return self._counters[key]

    def _load(self, compiled: Compiled) -> GpuKernel:
        core, driver = imported("cuda.core"), cuda_driver()
        with torch.cuda.device(self.torch_device):
            core.Device(self.torch_device.index).set_current()
            library = core.ObjectCode.from_cubin(compiled.cubin, name=compiled.entry)
            kernel = library.get_kernel(compiled.entry)
            function = checked("loading", driver.cuKernelGetFunction(driver.CUkernel(int(kernel.handle))))
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(
                f"giving blocks {compiled.shared_bytes} bytes of shared memory",
                driver.cuFuncSetAttribute(function, attribute, compiled.shared_bytes),
            )
        return GpuKernel(compiled, library, function, driver.cuLaunchKernel, self.torch_device)


def find_gpu(device: torch.device | None = None) -> Gpu:
    """The GPU of `device`, or the one that torch uses now; always the same object for one GPU.
    Errors: CU820 where there is none."""
    if device is not None and device.type != "cuda":
        raise no_gpu(f"tensors on {device} are not on a GPU")
    if not torch.cuda.is_available():
        raise no_gpu(f"torch {torch.__version__} finds no CUDA device")
    index: int | None = None if device is None else device.index
    return _gpu(torch.cuda.current_device() if index is None else index)


@cache
def _gpu(index: int) -> Gpu:
    return Gpu(torch.device("cuda", index))
