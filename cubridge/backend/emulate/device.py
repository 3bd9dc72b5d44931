"""Runs a kernel's text on the CPU, a `Device` for the launcher as a GPU is. kernels/emulate/runtime.cpp says what it judges."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from cubridge.backend.compile.compiler import listed_instantiations
from cubridge.backend.emulate.build import Program, build_program, emulator_cache_dir
from cubridge.backend.emulate.fault import fault_of
from cubridge.backend.emulate.launch import LaunchMemory
from cubridge.backend.launch.device import KernelText, Launch, TensorMapRequest
from cubridge.ir.contract import Instantiation, LaunchContract
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.types import DType

if TYPE_CHECKING:
    from torch import Tensor

SCHEDULES: Final = (0, 1)
"""Schedules that one launch runs. 0: a warp runs as far as it can, copies land last; others: drawn from the number. Even ones
put tensors flush with their ends, odd ones with their starts."""


@dataclass(slots=True)
class EmulatorDevice:
    """The CPU as a machine that runs kernels. Each launch runs once per schedule, and all must agree.

    `blocks`: what SM_COUNT is, so how many blocks a persistent kernel gets. `macros` overrule the contract's choices. `check`: what
    refuses a text before it is built, since what is built runs on this machine. `makes_lists`: of key tiles, by the kernel that
    makes them on a GPU, which is another program to build."""

    cache_dir: Path = field(default_factory=emulator_cache_dir)
    schedules: tuple[int, ...] = SCHEDULES
    blocks: int = 2
    timeout_s: float = 60.0
    macros: Mapping[str, int] = field(default_factory=dict)
    check: Callable[[KernelText, Instantiation], None] | None = None
    makes_lists: bool = False
    _maps: dict[bytes, TensorMapRequest] = field(default_factory=dict, init=False, repr=False)
    _handles: Iterator[int] = field(default_factory=lambda: count(1), init=False, repr=False)

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def constants(self) -> Mapping[str, int]:
        return {"SM_COUNT": self.blocks, "L2_BYTES": 1 << 25}

    def load(self, text: KernelText, dtype: DType, head_dim: int) -> EmulatedKernel:
        """The first form that the contract lists, with `macros` overruled, built. Errors: CU809, CU830, CU831; those of `check`."""
        first = listed_instantiations(text.contract, dtype, head_dim)[0]
        form = Instantiation(dtype, tuple((name, self.macros.get(name, value)) for name, value in first.macros))
        if self.check is not None:
            self.check(text, form)
        program = build_program(text.source, text.contract, form, text.include_dirs, self.cache_dir)
        return EmulatedKernel(self, text.contract, form, program)

    @property
    def maps_can_be_kept(self) -> bool:
        return False

    def tensor_map(self, request: TensorMapRequest) -> bytes:
        """A handle, good for one launch, which puts the emulator's own descriptor in its place."""
        handle = struct.pack("<Q120x", next(self._handles))
        self._maps[handle] = request
        return handle

    def take_map(self, handle: bytes) -> TensorMapRequest:
        return self._maps.pop(handle)

    def counters(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class EmulatedKernel:
    """One instantiation of a kernel text, built for the CPU."""

    device: EmulatorDevice
    contract: LaunchContract
    instantiation: Instantiation
    program: Program

    @property
    def key(self) -> str:
        return self.program.key

    @property
    def shared_bytes(self) -> int:
        return int(evaluate_number(self.contract.shared_bytes, dict(self.instantiation.macros)))

    def launch(self, launch: Launch, keep: Sequence[Tensor]) -> None:
        """Run the launch under every schedule; the outputs are among `keep`.
        Errors: CU832 to CU837, of the first schedule that has one; CU833 where schedules give different outputs."""
        memory = LaunchMemory.of(self.contract, launch.params, keep, self.device.take_map)
        schedules = self.device.schedules
        with ThreadPoolExecutor(len(schedules)) as pool:
            outputs = list(pool.map(lambda schedule: self._run(memory.file(launch, schedule)), schedules))
        if any(data != outputs[0] for data in outputs):
            raise CuError(Diagnostic("CU833", "emulator: race: the outputs differ from schedule to schedule"))
        memory.give_back(outputs[0])

    def _run(self, launch_file: bytes) -> bytes:
        """The outputs of one run."""
        with tempfile.TemporaryDirectory(prefix="cubridge-") as folder:
            given, got = Path(folder, "launch"), Path(folder, "output")
            given.write_bytes(launch_file)
            command = [str(self.program.path), str(given), str(got)]
            limit = self.device.timeout_s
            try:
                result = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
            except subprocess.TimeoutExpired as error:
                message = f"emulator: the kernel does not end within {limit:g} s"
                raise CuError(Diagnostic("CU837", message), exit_code=6) from error
            if result.returncode != 0:
                raise fault_of(self.program, result.returncode, result.stderr)
            return got.read_bytes()
