"""A foreign kernel to CuIR: it is run at several shapes, its runs are read, and what was read is held against them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cubridge.backend.ptx.machine import Schedule
from cubridge.backend.ptx.tracing import trace
from cubridge.driver.foreign.build import Built, build
from cubridge.driver.foreign.given import given_of
from cubridge.driver.foreign.judge import check_events, check_values
from cubridge.driver.foreign.launch import ForeignLaunch, launch_of, outputs_of
from cubridge.engine.threads import one_thread
from cubridge.frontend.ptx.contract import read_foreign_contract
from cubridge.frontend.ptx.coverage import uncovered
from cubridge.frontend.ptx.kernel import read_kernel
from cubridge.frontend.ptx.run import Followed, runs_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.foreign import ForeignContract
from cubridge.ir.nodes import Kernel
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Remark
from cubridge.judge.well_formed import verify_kernel

_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ForeignLift:
    """`remarks`: what no run showed."""

    kernel: Kernel
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """A launch with its outputs, and the blocks that were followed."""

    launch: ForeignLaunch
    outputs: tuple[bytes, ...]
    followed: tuple[Followed, ...]


def lift_foreign(kernel: Path, contract: Path, source: SourceFile | None = None) -> ForeignLift:
    """`source`: another text in the kernel's place.

    Errors: CU451 the contract; CU805 to CU808, CU852 the build; CU832 to CU839 a run; CU850 to CU854 what cannot be read; CU2xx
    CuIR that is not well-formed; CU855 CuIR that is not what the runs do."""
    said = read_foreign_contract(contract)
    built = build(source or SourceFile.read(kernel), said, kernel.parent)
    ran = [follow(built, said, launch_of(built, said, shape)) for shape in said.shapes]
    runs = runs_of([found for each in ran for found in each.followed])
    lifted = read_kernel(runs, said)
    verify_kernel(lifted)
    judge_lift(lifted, said, ran)
    return ForeignLift(lifted, uncovered(runs))


def judge_lift(kernel: Kernel, contract: ForeignContract, ran: list[Ran]) -> None:
    """Errors: CU855, CU3xx."""
    with one_thread():
        for each in ran:
            for found in each.followed:
                check_events(kernel, found, each.launch.inputs)
            outputs = outputs_of(contract, each.launch.shape, each.outputs)
            grid = each.launch.ptx.grid.blocks
            check_values(kernel, each.launch.shape, grid, contract.dtype, each.launch.inputs, outputs)


def follow(built: Built, contract: ForeignContract, launch: ForeignLaunch) -> Ran:
    """Runs a launch. First and last block are followed where they visit a key tile; other schedules must agree in every bit."""
    given = given_of(contract, launch.shape, launch.placed, built.machine.program.param_bytes)
    followed: list[Followed] = []
    outputs: tuple[bytes, ...] = ()
    for block in dict.fromkeys((0, launch.blocks - 1)):
        found, outputs = trace(built.machine, launch.ptx, block, _SECONDS)
        read = Followed.of(found, contract, launch.shape, given)
        if read.walk.keys:
            followed.append(read)
    for schedule in (Schedule.REVERSED, Schedule.HOSTILE):
        if built.machine.run(launch.ptx, schedule, _SECONDS) != outputs:
            raise CuError(Diagnostic("CU833", "emulator: race: the outputs differ from schedule to schedule"))
    return Ran(launch, outputs, tuple(followed))
