"""Where a call runs, and by which of the packaged kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cubridge.backend.gpu.device import find_gpu
from cubridge.ir.diagnostics import CuError, Diagnostic

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Place:
    """`device`: as `Adaptation.compile` takes it."""

    kernel: str
    device: str


def place_of(device: str, kernel: str, tensors: torch.device) -> Place:
    """For tensors that lie there. Errors: CU820 where nothing runs kernels."""
    if device == "emulator":
        return Place("sm80" if kernel == AUTO else kernel, device)
    if device == AUTO and tensors.type != "cuda":
        message = f"tensors on {tensors} are not on a GPU, and nothing else runs kernels unasked"
        help_ = 'move them to a GPU, or say device="emulator" for a few hundred rows on a CPU'
        raise CuError(Diagnostic("CU820", message, help=help_), exit_code=5)
    if kernel != AUTO:
        return Place(kernel, "cuda" if device == AUTO else device)
    find_gpu(tensors)
    return Place(kernel_for(torch.cuda.get_device_capability(tensors)), "cuda")


def kernel_for(capability: tuple[int, int]) -> str:
    """Errors: CU820 for a GPU that no packaged kernel runs on."""
    if capability < (8, 0):
        message = f"this GPU has compute capability {capability[0]}.{capability[1]}; the kernels need 8.0"
        raise CuError(Diagnostic("CU820", message), exit_code=5)
    return "sm90a" if capability[0] == 9 else "sm80"
