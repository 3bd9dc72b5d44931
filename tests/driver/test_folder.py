"""Folders that `cuirc adapt` wrote, opened elsewhere and without the file of the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import cubridge
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.driver.backward import lower_backward
from cubridge.driver.backward_folder import open_backward
from cubridge.driver.compiled import compile_adapted
from cubridge.driver.folder import open_folder
from cubridge.ir.diagnostics import CuError
from cubridge.judge.findings import Findings, MutantResult, Verdict
from tests.support.unchecked import unchecked_backward

TEXT = """\
import torch

def attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    later = torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None] + SHIFT
    s = (q @ k.repeat_interleave(group, 1).mT * q.shape[-1] ** -0.5).masked_fill(later, -torch.inf)
    return torch.softmax(s, -1).to(v.dtype) @ v.repeat_interleave(group, 1)
"""


def write(reference: object, folder: Path, grad: bool = False) -> Path:
    """What `cuirc adapt` writes, of kernels that no check has run."""
    adapted = adapt_unchecked(reference, "sm90a" if grad else "sm80")
    mutants = (MutantResult("mask dropped", "value engine"),)
    report, backward = adapted.report(Findings((), mutants, (), Verdict.INTERPRETED, ())), None
    if grad:
        backward = unchecked_backward(lower_backward(adapted))
        report = replace(report, backward=backward.report)
    folder.mkdir()
    Adaptation(adapted, report, {}, backward).write(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("causal.py").write_text(TEXT.replace("SHIFT", "0"))
    return write("causal.py", tmp_path / "out")


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = PtxDevice(ONE_SCHEDULE)
    monkeypatch.setattr(
        "cubridge.driver.load.compile_for",
        lambda adapted, _, backward: compile_adapted(adapted, lambda _: emulator, backward=backward, check=False),
    )


def qkv() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, 40, 64, generator=generator).bfloat16() for _ in range(3)]


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5
    return torch.softmax(s, -1).to(v.dtype) @ v.repeat_interleave(s.shape[1] // v.shape[1], 1)


@pytest.mark.usefixtures("unchecked")
def test_a_folder_is_loaded_wherever_it_lies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.nn.functional.scaled_dot_product_attention(*qkv(), is_causal=True)
    torch.testing.assert_close(cubridge.load(folder, "emulator")(*qkv()), right, rtol=2e-2, atol=2e-2)
    Path("causal.py").unlink()
    monkeypatch.chdir("/")
    torch.testing.assert_close(cubridge.load(folder, "emulator")(*qkv()), right, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_folder_with_a_backward_pass_trains(folder: Path) -> None:
    out = write("causal.py", folder.parent / "trained", grad=True)
    opened = open_folder(out)
    lowered = open_backward(out, opened)
    assert lowered is not None and open_backward(folder, open_folder(folder)) is None
    files = unchecked_backward(lowered).files()
    assert {name: (out / name).read_bytes() for name in files} == files
    inputs = [x.requires_grad_() for x in qkv()]
    right = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
    found = cubridge.load(out, "emulator")(*inputs)
    for one, other in zip(
        *(torch.autograd.grad(x.float().square().sum(), inputs) for x in (found, right)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=4e-2, atol=4e-2)
    text = (out / "backward.cu").read_bytes()
    (out / "backward.cu").write_bytes(text.replace(b"j <= ", b"j < ", 1))
    assert text != (out / "backward.cu").read_bytes()
    with pytest.raises(CuError, match=r"backward.cu does not say what backward.cuir says") as caught:
        cubridge.load(out, "emulator")
    assert caught.value.diagnostics[0].code == "CU843"


def test_what_was_adapted_is_what_is_read(folder: Path) -> None:
    """The file has changed since."""
    Path("causal.py").write_text(TEXT.replace("SHIFT", "1"))
    found = open_folder(folder).reference
    assert found.path == "causal.py" and "SHIFT" not in found.explain() and "j <= i + 1" not in found.explain()


@pytest.mark.usefixtures("unchecked")
def test_a_live_callable_is_given_again(tmp_path: Path) -> None:
    out = write(plain, tmp_path / "out")
    with pytest.raises(CuError, match="live callable") as caught:
        cubridge.load(out, "emulator")
    assert caught.value.diagnostics[0].code == "CU842"
    run = cubridge.load(out, "emulator", reference=plain)
    torch.testing.assert_close(run(*qkv()), plain(*qkv()), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("text", ["", "[]", "[" * 200_000])
def test_a_report_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(CuError, match="is no report of cuirc adapt"):
        open_folder(tmp_path)
