"""The planted fault fits the kernel, and the emulator finds it too."""

from __future__ import annotations

import pytest
import torch

from bench.memcheck import FAULT
from bench.smoke import base_kernel
from cubridge.backend.device import KernelText
from cubridge.backend.emulate import EmulatorDevice
from cubridge.backend.runtime import Launcher
from cubridge.ir.diagnostics import CuError
from cubridge.ir.source import SourceFile


def test_the_planted_fault_is_one() -> None:
    right = base_kernel("sm80")
    assert right.source.text.count(FAULT[0]) == 1
    wrong = SourceFile.from_text(right.source.name, right.source.text.replace(*FAULT))
    q = torch.randn(1, 2, 65, 64).bfloat16()
    with pytest.raises(CuError):
        Launcher(EmulatorDevice(schedules=(0,)), KernelText(wrong, right.contract))(q, q, q)
