"""The few calls of the CUDA driver that the runtime makes itself, beside what cuda-core does for it."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import torch

from cubridge.backend.launch.device import TensorMapRequest
from cubridge.ir.diagnostics import CuError, Diagnostic

MAP_BYTES: Final = 128
_MAP_ALIGNMENT: Final = 64
_MAP_DTYPES: Final = {"torch.bfloat16": "BFLOAT16", "torch.float16": "FLOAT16", "torch.float32": "FLOAT32"}


@cache
def cuda_driver() -> ModuleType:
    """The driver API. Errors: CU820 without cuda-bindings."""
    return imported("cuda.bindings.driver")


def imported(name: str) -> ModuleType:
    """A module of the extra `cuda`. Errors: CU820 if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise no_gpu(f"{name} is not installed ({error}); python -m pip install 'cubridge[cuda]'") from error


def no_gpu(reason: str) -> CuError:
    help_ = "the emulator runs kernels without a GPU; compiling needs none either"
    return CuError(Diagnostic("CU820", f"kernels cannot be launched here: {reason}", help=help_), exit_code=5)


def checked(what: str, result: tuple[Any, ...]) -> Any:
    """The value of a driver call. Errors: CU825 if it failed."""
    status, *values = result
    if status.value != 0:
        raise CuError(Diagnostic("CU825", f"{what}: {status.name}"))
    return values[0] if values else None


def current_stream(device: torch.device) -> int:
    """The handle of torch's current stream; the object of `torch.cuda.current_stream` takes five times as long."""
    return torch._C._cuda_getCurrentRawStream(device.index)  # pyright: ignore


class _Threads(threading.local):
    """Devices whose context this thread has made current once, which a launch asks for."""

    def __init__(self) -> None:
        self.ready: set[int] = set()


_threads: Final = _Threads()


def is_thread_ready(device: torch.device) -> bool:
    return device.index in _threads.ready


def make_thread_ready(device: torch.device) -> None:
    imported("cuda.core").Device(device.index).set_current()
    _threads.ready.add(device.index)


def encode_tensor_map(request: TensorMapRequest) -> bytes:
    """A CUtensorMap of 128 bytes. The driver writes it to an address that is a multiple of 64, which cuda-bindings does not
    promise; so this call goes to the library itself. Errors: CU825."""
    driver = cuda_driver()
    rank = len(request.extents)
    storage = ctypes.create_string_buffer(MAP_BYTES + _MAP_ALIGNMENT)
    address = -(-ctypes.addressof(storage) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
    kind = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_DTYPES[str(request.tensor.dtype)]}")
    swizzle = f"SWIZZLE_{request.swizzle_bytes}B" if request.swizzle_bytes else "SWIZZLE_NONE"
    status = _encoder()(
        address,
        int(kind),
        rank,
        request.tensor.data_ptr(),
        (ctypes.c_uint64 * rank)(*request.extents),
        (ctypes.c_uint64 * (rank - 1))(*request.strides_bytes),
        (ctypes.c_uint32 * rank)(*request.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        int(getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_{swizzle}")),
        int(driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B),
        int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )
    if status != 0:
        shape = f"extents {request.extents}, strides {request.strides_bytes} bytes, box {request.box}"
        name = driver.CUresult(status).name
        raise CuError(Diagnostic("CU825", f"making a TMA descriptor of {shape}: {name}"))
    return ctypes.string_at(address, MAP_BYTES)


@cache
def _encoder() -> Any:
    try:
        function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise no_gpu(f"the CUDA driver has no cuTensorMapEncodeTiled ({error})") from error
    word = ctypes.c_int
    function.restype = word
    function.argtypes = [
        ctypes.c_void_p, word, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_void_p, word, word, word, word,
    ]  # fmt: skip
    return function
