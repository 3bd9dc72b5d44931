"""Which architecture a kernel is compiled to, so that it runs on a GPU, and which GPUs it does not run on."""

from __future__ import annotations

import pytest

from cubridge.backend.compile.targets import TARGETS, find_target, target_for_device
from cubridge.ir.diagnostics import CuError


@pytest.mark.parametrize(
    ("kernel", "capability", "target"),
    [
        ("sm_80", (8, 0), "sm_80"),
        ("sm_80", (8, 9), "sm_89"),
        ("sm_80", (9, 0), "sm_90a"),
        ("sm_80", (12, 0), "sm_120a"),
        ("sm_90a", (9, 0), "sm_90a"),
    ],
)
def test_a_gpu_gets_code_of_its_own(kernel: str, capability: tuple[int, int], target: str) -> None:
    assert target_for_device(kernel, capability).name == target


@pytest.mark.parametrize(
    ("kernel", "capability", "message"),
    [
        ("sm_90a", (10, 0), "the kernel is for sm_90a alone; this GPU has compute capability 10.0"),
        ("sm_90a", (8, 0), "for sm_90a alone"),
        ("sm_89", (8, 0), "the kernel needs sm_89; this GPU has compute capability 8.0"),
        ("sm_80", (7, 5), "no target of this tool is for compute capability 7.5"),
    ],
)
def test_a_gpu_without_the_instructions_is_refused(kernel: str, capability: tuple[int, int], message: str) -> None:
    with pytest.raises(CuError) as caught:
        target_for_device(kernel, capability)
    assert caught.value.diagnostics[0].code == "CU802" and message in str(caught.value) and caught.value.exit_code == 4


def test_every_target_is_found_by_its_name() -> None:
    assert all(find_target(name) is target for name, target in TARGETS.items())
    assert [t.name for t in TARGETS.values() if not t.is_specific] == ["sm_80", "sm_86", "sm_87", "sm_89"]
