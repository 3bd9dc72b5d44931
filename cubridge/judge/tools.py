"""How kernel texts are compiled and run: in this process, or by other tools of the same form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.device import ONE_SCHEDULE, SCHEDULES, PtxDevice
from cubridge.backend.ptx.machine import Schedule
from cubridge.ir.types import DTYPES
from cubridge.judge.findings import Compiled
from cubridge.judge.list_makers import check_makers
from cubridge.judge.readable import check_readable
from cubridge.judge.runners import LaunchRunner, TextRunner

if TYPE_CHECKING:
    from cubridge.backend.launch.device import KernelText

EMULATED_HEAD_DIM: Final = 64


class Tools(Protocol):
    """How kernel texts are compiled and run. Errors of each: exit code 5 where what it needs is not installed."""

    def compile(self, text: KernelText, dtype: str, head_dim: int) -> Compiled: ...

    def emulator(
        self,
        text: KernelText,
        dtype: str,
        head_dim: int = EMULATED_HEAD_DIM,
        schedules: tuple[Schedule, ...] = SCHEDULES,
    ) -> TextRunner: ...

    def gpu(self, text: KernelText) -> TextRunner: ...


@dataclass(frozen=True, slots=True)
class Here:
    """In this process, for packaged texts and what rules change in them."""

    def compile(self, text: KernelText, dtype: str, head_dim: int) -> Compiled:
        return compile_text(text, dtype, head_dim)

    def emulator(
        self,
        text: KernelText,
        dtype: str,
        head_dim: int = EMULATED_HEAD_DIM,
        schedules: tuple[Schedule, ...] = SCHEDULES,
    ) -> TextRunner:
        return build_emulated(text, dtype, head_dim, schedules)

    def gpu(self, text: KernelText) -> TextRunner:
        return launch(text)


def compile_text(text: KernelText, dtype: str, head_dim: int) -> Compiled:
    """Compile for the kernel's architecture. Errors: CU80x; exit code 5 where the compiler is not installed."""
    from cubridge.backend.compile.compiler import compile_best

    done = compile_best(text.source, text.contract, DTYPES[dtype], head_dim, include_dirs=text.include_dirs)
    macros = " ".join(f"{name}={value}" for name, value in done.instantiation.macros)
    resources = done.resources
    return Compiled(done.target.name, macros, resources.registers, resources.spills, done.shared_bytes)


def build_emulated(
    text: KernelText, dtype: str, head_dim: int, schedules: tuple[Schedule, ...] = SCHEDULES
) -> LaunchRunner:
    """`emulate`, and where order is judged, what makes the lists of the text as well. Errors: as `emulate`; CU832 to CU844."""
    runner = emulate(text, dtype, head_dim, schedules)
    if schedules != ONE_SCHEDULE:
        check_makers(runner.launcher.device, text, DTYPES[dtype], head_dim)
    return runner


def emulate(
    text: KernelText,
    dtype: str,
    head_dim: int = EMULATED_HEAD_DIM,
    schedules: tuple[Schedule, ...] = SCHEDULES,
) -> LaunchRunner:
    """The text on the emulator, compiled to PTX; `schedules`: one where order is not judged. Errors: CU804 before that; CU831,
    CU838, CU839; CU805 and CU830, exit code 5, where NVRTC or the native library is not there."""
    launcher = Launcher(PtxDevice(schedules, check=check_readable), text)
    launcher.prepare(DTYPES[dtype], head_dim)
    return LaunchRunner(launcher, "emulator")


def launch(text: KernelText) -> TextRunner:
    """The text on the GPU that torch uses. Errors: CU820, exit code 5, where there is none."""
    return LaunchRunner(Launcher(find_gpu(), text), "gpu", runs=2)
