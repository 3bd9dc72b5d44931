"""Operators that are pickled, saved by torch, and copied."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.driver.compiled import compile_adapted
from cubridge.ir.diagnostics import CuError
from cubridge.judge.findings import Findings, Verdict


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators on the emulator without the check before their first result, which takes seconds."""

    def compile_for(adapted, device, backward=None):
        assert device == "emulator"
        emulator = PtxDevice(ONE_SCHEDULE)
        return compile_adapted(adapted, lambda _: emulator, backward=backward, check=False, device=device)

    monkeypatch.setattr("cubridge.driver.compiled.compile_for", compile_for)


def compiled(reference, **options):
    from cubridge.driver import compiled

    return compiled.compile_for(adapt_unchecked(reference, "sm80", **options), "emulator")


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5


def attend(s: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(s, -1).to(v.dtype) @ v.repeat_interleave(s.shape[1] // v.shape[1], 1)


class Biased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(0, 1, 64), requires_grad=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(scores(q, k) + self.bias[torch.arange(k.shape[2]) % 64], v)


class Model(nn.Module):
    """Keeps the operator beside the module that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Biased()
        self.fast = compiled(self.attention)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    later = torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None]
    return attend(scores(q, k).masked_fill(later, -torch.inf), v)


def qkv() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, 40, 64, generator=generator).bfloat16() for _ in range(3)]


def close(got: Tensor, reference) -> None:
    right = reference(*(t.double() for t in qkv()))
    torch.testing.assert_close(got.double(), right, rtol=2e-2, atol=2e-2)


def saved_by_torch(value: object) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [saved_by_torch, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))])
def test_a_copy_computes_the_same(again) -> None:
    run = compiled(causal)
    assert torch.equal(again(run)(*qkv()), run(*qkv()))
    assert repr(run) == "CompiledOperator(causal -> sm80, bf16)"


def test_an_adaptation_is_its_own_copy_and_is_written_instead_of_pickled() -> None:
    adapted = compiled(causal).adapted
    whole = Adaptation(adapted, adapted.report(Findings((), (), (), Verdict.INTERPRETED, ())), {})
    assert copy.deepcopy(whole) is whole
    with pytest.raises(CuError, match="cannot be pickled") as caught:
        pickle.dumps(whole)
    assert caught.value.diagnostics[0].code == "CU846"
    assert whole.target_ir._repr_html_().startswith("<pre>cuir(version=1)")
    assert "exp2(s * p.exponent_scale" in whole.target_ir._repr_html_() and "->" not in whole.target_ir._repr_html_()
    assert whole._repr_markdown_().startswith("# causal on sm80")


@pytest.mark.parametrize("again", [saved_by_torch, copy.deepcopy])
def test_a_copied_model_reads_its_own_parameters(again) -> None:
    model = Model()
    other = again(model)
    with torch.no_grad():
        other.attention.bias.neg_()
    close(other.fast(*qkv()), other.attention)
    close(model.fast(*qkv()), model.attention)


FILE = """\
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(64), requires_grad=False)

    def forward(self, q, k, v):
        s = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT + self.bias[torch.arange(k.shape[2]) % 64]
        return torch.softmax(s, -1).to(v.dtype) @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)

attention = Attention()
"""


def test_an_operator_of_a_file_wakes_up_without_it(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(FILE)
    run = compiled(path)
    module = run.adapted.reference.traced.reference.function
    with torch.no_grad():
        module.bias.copy_(torch.linspace(-2, 2, 64))
    data = pickle.dumps(run)
    path.unlink()
    other = pickle.loads(data)
    assert torch.equal(other(*qkv()), run(*qkv()))
    close(other(*qkv()), module)


def test_what_another_process_cannot_find_is_refused() -> None:
    def local(q, k, v):
        return causal(q, k, v)

    run = compiled(local)
    with pytest.raises(CuError, match="local` cannot be saved") as caught:
        pickle.dumps(run)
    assert caught.value.diagnostics[0].code == "CU846"
    assert torch.equal(copy.deepcopy(run)(*qkv()), run(*qkv()))


def test_a_reference_that_has_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(compiled(causal))
    monkeypatch.setattr("tests.driver.test_saved.causal", lambda q, k, v: attend(scores(q, k), v))
    with pytest.raises(CuError, match="computes something else") as caught:
        pickle.loads(data)
    assert caught.value.diagnostics[0].code == "CU846"
