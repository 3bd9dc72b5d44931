"""The planted fault fits the kernel, and the emulator finds it too."""

from __future__ import annotations

import pytest
import torch

from bench.memcheck import with_planted_fault
from bench.smoke import base_kernel
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.ir.diagnostics import CuError


def test_the_planted_fault_is_one() -> None:
    right = base_kernel("sm80")
    wrong = with_planted_fault(right.source)
    q = torch.randn(1, 2, 65, 64).bfloat16()
    with pytest.raises(CuError):
        Launcher(PtxDevice(ONE_SCHEDULE), KernelText(wrong, right.contract))(q, q, q)
