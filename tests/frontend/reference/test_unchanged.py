"""Reading a reference changes nothing of the user's, also where it fails."""
# pyright: basic

from __future__ import annotations

import functools
import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from cubridge.frontend.reference.load import Reference, load_reference
from cubridge.frontend.reference.trace import trace
from cubridge.frontend.reference.unchanged import unchanged
from cubridge.ir.diagnostics import CuError
from tests.frontend.reference.references.helpers import repeated

CACHE: dict[str, torch.Tensor] = {}
COUNT = [0]


class Lazy(nn.Module):
    made = None
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.mask, self.seen = None, []
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, q, k, v):
        global COUNT
        n = max(q.shape[2], k.shape[2])
        if self.mask is None or self.mask.shape[0] < n:
            self.mask = torch.ones(n, n, dtype=torch.bool).tril()
        Lazy.made = CACHE["mask"] = self.mask
        self.seen.append(self.mask)
        self.steps += 1
        self.steps.add_(1)
        self.train()
        COUNT = [COUNT[0] + 1]
        s = q @ repeated(k, q).mT * q.shape[-1] ** -0.5
        return s.masked_fill(~self.mask[: q.shape[2], : k.shape[2]], -torch.inf).softmax(-1) @ repeated(v, q)


def test_a_module_that_fills_caches_stays_as_it_was() -> None:
    module = Lazy().eval()
    before = COUNT
    trace(Reference.of(module))
    assert module.mask is None and Lazy.made is None and not CACHE and module.seen == []
    assert float(module.steps) == 0 and not module.training
    assert COUNT is before and COUNT == [0]


def test_also_after_a_failure() -> None:
    class Failing(Lazy):
        def forward(self, q, k, v):
            super().forward(q, k, v)
            raise ValueError("no")

    module = Failing().eval()
    with pytest.raises(CuError, match="CU474"):
        trace(Reference.of(module))
    assert module.mask is None and Lazy.made is None and not CACHE and float(module.steps) == 0


def settings() -> list[object]:
    numpy_state = np.random.get_state()
    return [
        torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state().tolist(), random.getstate(),
        (numpy_state[1].tolist(), numpy_state[2]), torch.are_deterministic_algorithms_enabled(),
    ]  # fmt: skip


def unsettle() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    torch.use_deterministic_algorithms(True)


@pytest.mark.parametrize("fails", [False, True])
def test_settings_are_put_back(fails: bool) -> None:
    def attention(q, k, v, bias):
        unsettle()
        if fails:
            raise ValueError("no")
        return (q @ repeated(k, q).mT + bias.to(q.dtype)).softmax(-1).to(v.dtype) @ repeated(v, q)

    def extra_inputs(shape, device):
        unsettle()
        return {"bias": torch.randn(shape.Lk, dtype=torch.float32)}

    before = settings()
    try:
        trace(Reference.of(attention, extra_inputs))
    except CuError as error:
        assert fails and error.diagnostics[0].code == "CU474"
    assert settings() == before


def test_settings_are_put_back_after_an_import(tmp_path) -> None:
    text = "import random, numpy, torch\ntorch.set_default_dtype(torch.float64)\ntorch.manual_seed(0)\nrandom.seed(0)\n"
    (tmp_path / "reference.py").write_text(text + "def attention(q, k, v):\n    return v\n")
    before = settings()
    load_reference(tmp_path / "reference.py")
    assert settings() == before


def test_a_function_with_a_cache_holds_no_symbols() -> None:
    @functools.lru_cache
    def made(n):
        return torch.ones(1) * n

    class Cached(nn.Module):
        def forward(self, q, k, v):
            return (q @ repeated(k, q).mT * made(3)).softmax(-1) @ repeated(v, q)

    trace(Reference.of(Cached()))
    assert type(made(3)) is torch.Tensor and float(made(3)) == 3


def test_memory_and_what_numpy_holds_are_put_back() -> None:
    array, tensor, table = np.zeros(3), torch.zeros(3), {1: {2, 3}}

    def runs() -> None:
        array[1] = 5
        tensor.data = torch.ones(3)
        torch.add(tensor, 1, out=tensor)
        tensor.requires_grad_(True)
        table[1].add(4)
        table[5] = set()

    memory = tensor.data_ptr()
    with unchanged(runs):
        runs()
    assert array.tolist() == tensor.tolist() == [0, 0, 0] and tensor.data_ptr() == memory
    assert table == {1: {2, 3}} and not tensor.requires_grad


def test_a_second_call_that_reads_what_the_first_one_kept_is_the_one_that_counts() -> None:
    kept = []

    def attention(q, k, v):
        kept.append(1)
        return (q @ repeated(k, q).mT * min(len(kept), 2)).softmax(-1) @ repeated(v, q)

    with pytest.raises(CuError, match="CU487"):
        trace(Reference.of(attention))
    assert kept == []


def test_tensors_that_lie_elsewhere_are_read_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the device of each were another: what runs inside finds a copy."""
    bias, places = torch.zeros(1), deque[int]()

    def attention(q, k, v):
        if not isinstance(q, FakeTensor):
            places.append(bias.data_ptr())
        return (q @ repeated(k, q).mT + bias.to(q.dtype)).softmax(-1) @ repeated(v, q)

    before = bias.data_ptr()
    monkeypatch.setattr("cubridge.frontend.reference.unchanged.is_elsewhere", lambda tensor: tensor is bias)
    traced = trace(Reference.of(attention))
    assert places and before not in places and bias.data_ptr() == before
    assert traced.state()["bias"] is bias
