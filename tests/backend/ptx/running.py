"""Kernel texts on the PTX machine in tests."""

from __future__ import annotations

from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.device import SCHEDULES, PtxDevice
from cubridge.backend.ptx.machine import Schedule


def launcher(text: KernelText, schedules: tuple[Schedule, ...] = SCHEDULES, timeout_s: float = 20.0) -> Launcher:
    return Launcher(PtxDevice(schedules, timeout_s=timeout_s), text, say=lambda _: None)
