"""The packaged kernels without one ordering instruction of what the compiler made: each is noticed, or its reason is here."""

from __future__ import annotations

import pytest

from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.compiled import machine_of
from cubridge.backend.ptx.device import PtxDevice
from cubridge.backend.ptx.encode import cuda_chain
from cubridge.backend.ptx.machine import Machine, PtxLaunch, Schedule
from cubridge.ir.contract import instantiations
from cubridge.ir.diagnostics import CuError
from cubridge.ir.types import DType
from tests.backend.ptx.orders import ordering_sites, without
from tests.backend.ptx.running import kept_launches
from tests.kernels.emulated import kernel_text, random_inputs

pytestmark = pytest.mark.slow

SHAPES = ((1, 3, 1, 300, 330, 64), (1, 3, 1, 300, 200, 64))


def notices(machine: Machine, launches: list[PtxLaunch], right: list[tuple[bytes, ...]]) -> str:
    """The code of the first fault, `VALUE` for a wrong output, or nothing."""
    for launch, expected in zip(launches, right, strict=True):
        for schedule in Schedule:
            try:
                if machine.run(launch, schedule, 20.0) != expected:
                    return "VALUE"
            except CuError as error:
                return error.diagnostics[0].code
    return ""


EQUIVALENT = {
    "sm80": (),
    "sm90a": (
        # The first round, which the compiler has peeled off: the slot is empty, and its wait returns at once.
        ("mbarrier.try_wait.parity.shared::cta.b64", "barrier_wait(smem.work_empty, work_ring.phase ^ 1);"),
    ),
}
"""What no run shows, in the order of the text."""


@pytest.mark.parametrize(("arch", "count"), [("sm80", 8), ("sm90a", 48)])
def test_each_order(arch: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel_text(arch, equal_work=False)
    launches = kept_launches(monkeypatch)
    for shape in SHAPES:
        Launcher(PtxDevice(blocks=3), text, say=lambda _: None)(*random_inputs(shape), lse=True)
    machine = machine_of(text, instantiations(text.contract, DType.BF16, 64)[0])[0]
    right = [machine.run(launch, Schedule.FORWARD, 20.0) for launch in launches]
    sites = ordering_sites(machine.program)
    missed = [
        (machine.program.code[pc].name, line_of(machine, pc))
        for pc in sites
        if not notices(Machine(without(machine.program, pc), machine.files), launches, right)
    ]
    assert tuple(missed) == EQUIVALENT[arch]
    assert len(sites) == count


def line_of(machine: Machine, pc: int) -> str:
    """Of the kernel's own text."""
    return cuda_chain(machine.program, pc, machine.files)[-1].text.split("//")[0].strip()
