"""`@cubridge.attention`, on the emulator, without the checks of kernels, which take seconds."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import cubridge
from cubridge.driver.kept import adapted_or_kept, key_of
from cubridge.driver.place import Place, kernel_for
from cubridge.driver.reference import read_reference
from cubridge.frontend.reference.load import Reference
from cubridge.ir.diagnostics import CuError
from tests.support.unchecked import unchecked


@pytest.fixture(autouse=True)
def adapted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The references that were adapted, by name."""
    return unchecked(monkeypatch, tmp_path)


on_emulator = cubridge.attention(device="emulator")


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5


def attend(s: Tensor, v: Tensor) -> Tensor:
    return s.softmax(-1).to(v.dtype) @ v.repeat_interleave(s.shape[1] // v.shape[1], 1)


@on_emulator
def causal(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None = None, half: bool = False, cap: float = 0.0
) -> Tensor:
    """With slopes, ALiBi."""
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    s = scores(q, k) / 2 if half else scores(q, k)
    s = s if slopes is None else s + slopes[:, None, None] * (j - i)
    return attend(s.masked_fill(j > i, -torch.inf), v)


def qkv(lq: int = 40, lk: int = 40, heads: int = 2, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    generator = torch.Generator().manual_seed(lq)
    return [torch.randn(1, heads, n, 64, generator=generator).to(dtype) for n in (lq, lk, lk)]


def check(run: Callable[..., Tensor], reference: Callable[..., Tensor], inputs: list[Tensor], **extra: object) -> None:
    right = reference(*(t.double() for t in inputs), **extra)
    torch.testing.assert_close(run(*inputs, **extra).double(), right, rtol=2e-2, atol=2e-2)


def test_each_form_is_adapted_once(adapted: list[str]) -> None:
    reference = causal.reference
    for inputs in (qkv(), qkv(50, 70), qkv()):
        check(causal, reference, inputs)
    assert adapted == ["causal"] and causal.__name__ == "causal" and causal.__doc__ == "With slopes, ALiBi."
    check(causal, reference, qkv(), slopes=torch.tensor([0.5, -0.1]))
    check(causal, reference, qkv(), half=False)
    assert len(adapted) == 2
    assert torch.equal(causal(v=qkv()[2], q=qkv()[0], k=qkv()[1]), causal(*qkv()))


def test_another_process_reads_what_was_adapted(
    adapted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is damaged is adapted again."""
    for module in ("kept", "adaptation"):
        monkeypatch.setattr(f"cubridge.driver.{module}.compile_for", lambda adapted, *_: adapted.text.source.data)

    def text() -> object:
        return adapted_or_kept(Reference.of(full), Place("sm80", "emulator"), None, torch.bfloat16)

    first = text()
    assert text() == first and adapted == ["full"]
    (target,) = (tmp_path / "adaptations").glob("*/target.cuir")
    target.write_text(target.read_text().replace("exp2", "exp", 1))
    assert text() == text() == first and len(adapted) == 2


@pytest.mark.slow
def test_a_decorated_function_trains(adapted: list[str]) -> None:
    """The second is read from the disk."""
    for _ in range(2):
        inputs = [x.requires_grad_() for x in qkv()]
        run = cubridge.attention(full, device="emulator", grad=True)
        found = torch.autograd.grad(run(*inputs).float().square().sum(), inputs)
        wide = [x.detach().double().requires_grad_() for x in inputs]
        for one, other in zip(found, torch.autograd.grad(full(*wide).square().sum(), wide), strict=True):
            assert (one.double() - other).norm() < 1e-2 * other.norm()
    assert adapted == ["full"]
    with pytest.raises(CuError, match="no backward pass") as caught:
        cubridge.attention(full, device="emulator", kernel="sm80", grad=True)(*qkv())
    assert caught.value.diagnostics[0].code == "CU534"


def test_the_key_is_what_is_asked_and_what_adapts(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(
        reference: Callable[..., Tensor] = full, kernel: str = "sm80", dtype: str = "bf16", grad: bool = False
    ) -> str:
        return key_of(read_reference(reference, dtype=dtype), kernel, dtype, grad)

    assert key() == key(lambda q, k, v: attend(scores(q, k), v))
    others = [key(lambda q, k, v: attend(scores(q, k) * 2, v)), key(kernel="sm90a"), key(dtype="fp16"), key(grad=True)]
    monkeypatch.setattr("cubridge.driver.kept._versions", lambda: "another torch, or another file of the package")
    assert len({key(), *others}) == 5 and key() == key()


def full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend(scores(q, k), v)


class Windowed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(0, 1, 40), requires_grad=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(scores(q, k) + self.bias, v)


@pytest.mark.slow
def test_a_module_keeps_its_parameters(adapted: list[str]) -> None:
    """It is read at the length that its bias has, whatever the adaptation would take first."""
    model = nn.Sequential(on_emulator(Windowed()))
    (fast,) = model
    assert list(model.state_dict()) == ["0.reference.bias"]
    check(fast, fast.reference, qkv(30, 40))
    other = copy.deepcopy(fast)
    with torch.no_grad():
        other.reference.bias.neg_()
    check(other, other.reference, qkv())
    check(fast, fast.reference, qkv())
    assert adapted == ["Windowed"] and pickle.loads(pickle.dumps(causal)) is causal


def square(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Reads equal lengths where it has to."""
    i = torch.arange(q.shape[2])
    far = (
        (i[:, None] - i).abs() > q.shape[2] // 2 if q.shape[2] == k.shape[2] else i[:, None] > torch.arange(k.shape[2])
    )
    return attend(scores(q, k).masked_fill(far, -torch.inf), v)


class Kept(nn.Module):
    """Keeps a number in an attribute, one in a global, and a mode; an argument becomes a Python number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.drop = 0.5, nn.Dropout(0.5)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, words: int = 1) -> Tensor:
        far = torch.arange(k.shape[2]) > REACH["keys"] + len("x" * words)
        return attend(self.drop((scores(q, k) * self.scale).masked_fill(far, -torch.inf)), v)


REACH = {"keys": 9}


@pytest.mark.slow
def test_a_number_that_is_changed_is_another_adaptation(adapted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fast = on_emulator(Kept().eval())
    changes = (
        lambda: None,
        lambda: setattr(fast.reference, "scale", 0.25),
        lambda: setattr(fast.reference, "scale", 0.5),
        lambda: monkeypatch.setitem(REACH, "keys", 5),
    )
    for change in changes:
        change()
        check(fast, fast.reference, qkv())
    assert len(adapted) == 3
    for words in (3, 4, 3):
        check(fast, fast.reference, qkv(), words=words)
    assert len(adapted) == 5
    fast.train()
    with pytest.raises(CuError, match="dropout"):
        fast(*qkv())


@pytest.mark.slow
def test_another_flag_is_another_adaptation(adapted: list[str]) -> None:
    fast = on_emulator(causal.reference)
    for half in (False, True, False):
        check(fast, fast.reference, qkv(), half=half)
    assert adapted == ["causal", "causal"]


@pytest.mark.slow
def test_sizes_that_break_a_precondition_are_adapted_anew(adapted: list[str]) -> None:
    fast = on_emulator(square)
    for inputs in (qkv(30, 50), qkv(), qkv(30, 50), qkv(48, 48)):
        check(fast, square, inputs)
    assert adapted == ["square", "square"]


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_said() -> None:
    def code(call: Callable[[], object]) -> str:
        with pytest.raises(CuError) as caught:
            call()
        return caught.value.diagnostics[0].code

    assert code(lambda: cubridge.attention(causal.reference)(*qkv())) == "CU820"
    assert code(lambda: cubridge.attention(Windowed)) == code(lambda: cubridge.attention(Windowed.forward)) == "CU472"
    assert code(lambda: cubridge.attention(lambda x: x)) == "CU472"
    assert code(lambda: cubridge.attention(nn.functional.scaled_dot_product_attention)) == "CU472"
    assert code(lambda: causal(*qkv(dtype=torch.float32))) == "CU809"
    assert code(lambda: causal(*qkv(), slopes="steep")) == "CU821"
    assert code(lambda: causal(*(t[0] for t in qkv()))) == "CU821"
    assert code(lambda: on_emulator(lambda q, k, v: scores(q, k))(*qkv())) == "CU475"
    assert [kernel_for(c) for c in ((8, 0), (8, 9), (9, 0), (12, 0))] == ["sm80", "sm80", "sm90a", "sm80"]
    assert code(lambda: kernel_for((7, 5))) == "CU820"


SCRIPT = """\
import logging, sys, torch, cubridge

@cubridge.attention(device="emulator")
def full(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)

x = torch.ones(1, 1, 9, 64).bfloat16()
compiled = torch.compile(full, fullgraph=True, backend="eager")
try:
    compiled(x, x, x)
except Exception as error:
    assert "call it once like this outside" in str(error)
assert torch.equal(full(x, x, x), x) and torch.equal(compiled(x, x, x), x)
"""


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    said = [
        subprocess.run([sys.executable, tmp_path / "script.py"], check=True, capture_output=True, text=True).stderr
        for _ in range(2)
    ]
    assert "`full` is adapted to sm80" in said[0] and "adapted" not in said[1]
