"""Small cases from public trouble that only a GPU shows in full."""
# pyright: basic

from __future__ import annotations

import pytest
import torch

from cubridge.backend.gpu.device import find_gpu
from cubridge.backend.launch.runtime import Launcher
from cubridge.judge.problem import problem_of
from tests.small_cases.test_tiles import LENGTHS, LONG, bottom_right, full
from tests.small_cases.tools import KERNELS, adapted, random_inputs

pytestmark = [
    pytest.mark.gpu(90),
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
        reason="needs a GPU of compute capability 9.0",
    ),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("reference", [full, bottom_right])
def test_21_lengths(kernel: str, reference) -> None:
    made = adapted(reference, kernel=kernel)
    gpu = find_gpu()
    launcher = Launcher(gpu, made.text)
    for lk in (*LENGTHS, LONG):
        for lq in {1, lk}:
            inputs = random_inputs(1, 2, 1, lq, lk)
            problem = problem_of(made.reference.attention, "given", inputs, "bf16", {})
            out, lse = launcher(*(x.to(gpu.torch_device) for x in inputs), lse=True)
            assert problem.judge(out.cpu(), lse.cpu()).accepted, (lq, lk)
