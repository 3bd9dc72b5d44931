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


def setting(variant: BenchVariant, folder: Path, long: bool = True) -> tuple[Setting, types.ModuleType]:
    module = variant.load(long=long, folder=folder)
    shape = Shape(2 if variant.by_batch else 1, 4, 2, *lengths(variant), 16)
    generator = torch.Generator().manual_seed(0)
    sides = ((shape.Hq, shape.Lq), (shape.Hk, shape.Lk), (shape.Hk, shape.Lk))
    q, k, v = (torch.randn(shape.B, h, n, shape.D, generator=generator) for h, n in sides)
    extra = module.extra_inputs(shape, "cpu") if hasattr(module, "extra_inputs") else {}
    return Setting(variant, q, k, v, extra), module


def lengths(variant: BenchVariant) -> tuple[int, int]:
    """Longer than the window; of distances, so short that no weight vanishes."""
    if variant.constants:
        return 1150, 1200
    if variant.score == "relative":
        return 40, 60
    equal = variant.causal or EXAMPLES[variant.name].equal_lengths
    return (160, 160) if equal else (128, 160)


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


def seen(problem: Setting, module: types.ModuleType) -> torch.Tensor:
    """V as unit vectors shows the weights; a key is visible where its weight is not 0 (ReLU: for positive scores)."""
    length = problem.k.shape[2]
    unit = torch.eye(length)[None, None].expand(problem.k.shape[0], 2, length, length)
    weights = module.attention(problem.q.abs(), problem.k.abs(), unit, **problem.extra)
    return (weights != 0).all(1)


@pytest.mark.parametrize("name", VARIANTS)
def test_visible_elements_are_those_of_the_example(name: str, tmp_path: Path) -> None:
    problem, module = setting(VARIANTS[name], tmp_path)
    assert torch.equal(seen(problem, module), problem.visible())
    lq, lk = problem.lengths
    batch = problem.q.shape[0]
    assert problem.flops() == 4 * 4 * 16 * problem.visible().sum().item() <= 4 * 4 * 16 * batch * lq * lk


@pytest.mark.parametrize("name", [n for n, v in VARIANTS.items() if v.by_batch and not v.constants])
def test_masks_that_differ_between_batch_entries(name: str, tmp_path: Path) -> None:
    problem, module = setting(VARIANTS[name], tmp_path, long=False)
    assert torch.equal(seen(problem, module), problem.visible())


def test_what_is_timed() -> None:
    """Lengths of documents at L 8192, parts of the question, one row of 2 L entries."""
    shape, made = Shape(2, 1, 1, 8192, 8192, 16), {}
    for name in ("documents_causal", "share_question", "relative_position_table"):
        scope: dict[str, object] = {}
        exec(compile(VARIANTS[name].source(long=True), name, "exec"), scope)
        made |= scope["extra_inputs"](shape, "cpu")  # type: ignore[operator]
    assert torch.bincount(made["doc"][1]).tolist() == [234, 1577, 534, 1439, 874, 292, 262, 2980]
    assert torch.bincount(made["answer"][1]).tolist() == [2048, 1536, 1536, 1536, 1536] and made["sample"].eq(0).all()
    assert made["table"].shape == (2 * 8192,)


def test_the_variants_are_the_examples() -> None:
    assert set(VARIANTS) == set(EXAMPLES)


def test_a_constant_that_an_example_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="sets no SIZE"):
        BenchVariant("full", VARIANTS["full"].visible, constants={"SIZE": 1}).source(long=True)
