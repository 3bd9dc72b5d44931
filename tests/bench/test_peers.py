"""A peer that computes something else than the variant would be no peer: each against its example, in fp32."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
import torch

from bench.peers import Setting, eager, flex, sdpa
from bench.variants import VARIANTS, BenchVariant
from cubridge.ir.spec import Shape
from tests.support.variants import VARIANTS as EXAMPLES


def setting(variant: BenchVariant, folder: Path) -> tuple[Setting, types.ModuleType]:
    module = variant.load(long=True, folder=folder)
    lengths = (1150, 1200) if variant.constants else (160, 160) if variant.causal else (128, 160)
    shape = Shape(1, 4, 2, *lengths, 16)
    generator = torch.Generator().manual_seed(0)
    sides = ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    q, k, v = (torch.randn(shape.B, h, n, shape.D, generator=generator) for h, n in sides)
    extra = module.extra_inputs(shape, "cpu") if hasattr(module, "extra_inputs") else {}
    return Setting(variant, q, k, v, extra), module


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", VARIANTS)
def test_peers_compute_what_the_example_computes(name: str, tmp_path: Path) -> None:
    problem, module = setting(VARIANTS[name], tmp_path)
    expected = eager(problem, module.attention)()
    found = sdpa(problem)
    if problem.variant.softmax:
        found["flex"] = flex(problem, compiled_by=lambda function: function)
    for peer, work in found.items():
        if peer in ("cuDNN", "FA2"):  # backends that only a GPU has
            continue
        torch.testing.assert_close(work(), expected, rtol=1e-4, atol=1e-5, msg=f"{name}: {peer}")


@pytest.mark.parametrize("name", VARIANTS)
def test_visible_elements_are_those_of_the_example(name: str, tmp_path: Path) -> None:
    """V as unit vectors shows the weights; a key is visible where its weight is not 0 (ReLU: for positive scores)."""
    problem, module = setting(VARIANTS[name], tmp_path)
    length = problem.k.shape[2]
    unit = torch.eye(length)[None, None].expand(1, 2, length, length)
    weights = module.attention(problem.q.abs(), problem.k.abs(), unit, **problem.extra)
    assert torch.equal((weights != 0).all(1)[0], problem.visible())
    lq, lk = problem.lengths
    assert problem.flops() == 4 * 4 * 16 * problem.visible().sum().item() <= 4 * 4 * 16 * lq * lk


def test_the_variants_are_examples() -> None:
    assert set(VARIANTS) <= set(EXAMPLES)


def test_a_constant_that_an_example_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="sets no SIZE"):
        BenchVariant("full", VARIANTS["full"].visible, constants={"SIZE": 1}).source(long=True)
