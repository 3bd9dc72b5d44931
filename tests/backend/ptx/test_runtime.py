"""The launcher with both kernels, run by the emulator: any layout of the inputs gives what contiguous copies give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.launch.operator_plan import OperatorPlan
from cubridge.backend.launch.runtime import Launcher
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.frontend.contract import read_contract
from cubridge.ir.source import SourceFile

B, HQ, HK, LQ, LK, D = 1, 4, 2, 65, 130, 64


def kernel_text(name: str) -> KernelText:
    contract = read_contract(KERNELS_DIR / name / "attention_forward.toml")
    return KernelText(SourceFile.read(KERNELS_DIR / name / contract.source), contract)


@pytest.fixture(params=["sm80", "sm90a"], scope="module")
def text(request: pytest.FixtureRequest) -> KernelText:
    return kernel_text(request.param)


@pytest.fixture
def launcher(text: KernelText) -> Launcher:
    return Launcher(PtxDevice(ONE_SCHEDULE), text, say=lambda _: None)


def expected(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = q.double() @ keys.mT * q.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ values, torch.logsumexp(scores, -1)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def test_full_attention_and_its_lse(launcher: Launcher) -> None:
    q, k, v = random(B, HQ, LQ, D), random(B, HK, LK, D), random(B, HK, LK, D)
    out, lse = launcher(q, k, v, lse=True)
    right_out, right_lse = expected(q, k, v)
    torch.testing.assert_close(out.double(), right_out, rtol=2**-7, atol=2**-9)
    torch.testing.assert_close(lse.double(), right_lse, rtol=1e-5, atol=1e-5)


def _expanded_k() -> tuple[Tensor, Tensor, Tensor]:
    return random(B, HQ, LQ, D), random(B, 1, LK, D).expand(B, HK, LK, D), random(B, HK, LK, D)


def _transposed_v() -> tuple[Tensor, Tensor, Tensor]:
    return random(B, HQ, LQ, D), random(B, HK, LK, D), random(B, HK, D, LK).mT


def _rows_of_heads() -> tuple[Tensor, Tensor, Tensor]:
    return random(B, LQ, HQ, D).transpose(1, 2), random(B, LK, HK, D).transpose(1, 2), random(B, HK, LK, D)


def _one_buffer() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = random(B, LQ, 3, HQ, D).permute(2, 0, 3, 1, 4)
    return q, k, v


@pytest.mark.parametrize("layout", [_expanded_k, _transposed_v, _rows_of_heads, _one_buffer])
def test_any_layout_gives_what_contiguous_copies_give(
    launcher: Launcher, layout: Callable[[], tuple[Tensor, Tensor, Tensor]]
) -> None:
    inputs = layout()
    copies = [t.contiguous() for t in inputs]
    assert torch.equal(launcher(*inputs), launcher(*copies))


def test_the_operator_runs_wherever_a_device_does(text: KernelText) -> None:
    device = PtxDevice(ONE_SCHEDULE)
    operator = AttentionOperator(OperatorPlan(text, gives_lse=True), lambda _: device)
    q, k, v = random(B, HQ, LQ, D), random(B, HK, LK, D), random(B, HK, LK, D)
    out, lse = operator(q, k, v)
    right_out, right_lse = expected(q, k, v)
    torch.testing.assert_close(out.double(), right_out, rtol=2**-7, atol=2**-9)
    torch.testing.assert_close(lse.double(), right_lse, rtol=1e-5, atol=1e-5)
