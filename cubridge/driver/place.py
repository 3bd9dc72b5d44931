"""Where a call runs, and by which of the packaged kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cubridge.backend.gpu.device import find_gpu
from cubridge.driver.backward import FORWARD
from cubridge.ir.diagnostics import CuError, Diagnostic

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Place:
    """`device`: as `Adaptation.compile` takes it. `grad`: with the kernel's backward pass."""

    kernel: str
    device: str
    grad: bool = False


def place_of(device: str, kernel: str, tensors: torch.device, grad: bool = False) -> Place:
    """For tensors that lie there. Errors: CU820 where nothing runs kernels."""
    if device == "emulator":
        usual = FORWARD if grad else "sm80"
        return Place(usual if kernel == AUTO else kernel, device, grad)
    if device == AUTO and tensors.type != "cuda":
        message = f"tensors on {tensors} are not on a GPU, and nothing else runs kernels unasked"
        help_ = 'move them to a GPU, or say device="emulator" for a few hundred rows on a CPU'
        raise CuError(Diagnostic("CU820", message, help=help_), exit_code=5)
    if kernel != AUTO:
        return Place(kernel, "cuda" if device == AUTO else device, grad)
    find_gpu(tensors)
    return Place(kernel_for(torch.cuda.get_device_capability(tensors)), "cuda", grad)


def kernel_for(capability: tuple[int, int]) -> str:
    """Errors: CU820 for a GPU that no packaged kernel runs on."""
    if capability < (8, 0):
        message = f"this GPU has compute capability {capability[0]}.{capability[1]}; the kernels need 8.0"
        raise CuError(Diagnostic("CU820", message), exit_code=5)
    return "sm90a" if capability[0] == 9 else "sm80"
