"""A small transformer, trained by the example: on the emulator its curve is that of PyTorch, and a wrong gradient parts them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from torch import Tensor

import cubridge
from tests.support.unchecked import unchecked

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_tiny.py"
SIZES = (1, 41, 1)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_tiny", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_curve_is_that_of_pytorch(example: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert unchecked(monkeypatch, tmp_path) == []
    kernel = cubridge.attention(example.attention, device="emulator", extra_inputs=example.extra_inputs, grad=True)
    curves = [example.train(attend, 4, *SIZES, "cpu") for attend in (example.attention, kernel)]
    assert example.agree(*curves) and curves[0] != curves[1]


@pytest.mark.parametrize("which", ["q and k", pytest.param("v", marks=pytest.mark.slow)])
def test_a_gradient_that_is_missing_parts_the_curves(example: ModuleType, which: str) -> None:
    def wrong(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
        inputs = (q, k, v.detach()) if which == "v" else (q.detach(), k.detach(), v)
        return example.attention(*inputs, document)

    curves = [example.train(attend, 20, *SIZES, "cpu") for attend in (example.attention, wrong)]
    assert example.agree(curves[0], curves[0]) and not example.agree(*curves)
