"""Kernel texts on the PTX machine in tests."""

from __future__ import annotations

from typing import Any

import pytest

from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx import device
from cubridge.backend.ptx.device import SCHEDULES, PtxDevice
from cubridge.backend.ptx.machine import PtxLaunch, Schedule


def launcher(text: KernelText, schedules: tuple[Schedule, ...] = SCHEDULES, timeout_s: float = 20.0) -> Launcher:
    return Launcher(PtxDevice(schedules, timeout_s=timeout_s), text, say=lambda _: None)


def kept_launches(monkeypatch: pytest.MonkeyPatch) -> list[PtxLaunch]:
    """What the launcher gives to the machine from now on."""
    made: list[PtxLaunch] = []
    arranged = device._arranged

    def keep(*given: Any) -> PtxLaunch:
        made.append(arranged(*given))
        return made[-1]

    monkeypatch.setattr(device, "_arranged", keep)
    return made
