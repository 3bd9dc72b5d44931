"""Weights of a sigmoid by a series where they are small."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cubridge.ir.nodes import FloatLit, Kernel, Node
from cubridge.ir.printer import print_stmts
from cubridge.ir.series import LONGEST, SATURATED, without_series
from cubridge.ir.spec import AttentionSpec
from cubridge.ir.walk import rewrite
from cubridge.judge.proof.prove import prove_part
from cubridge.passes.propose import propose
from cubridge.passes.runner import run_pipeline
from tests.passes.specs import elementwise
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel

SIGMOID = elementwise("1 / (1 + exp(-x))", score="s * D ** -0.5 - log(Lk)")
WITHOUT_BIAS = elementwise("1 / (1 + exp(-x))", score="s * D ** -0.5")


def target(kernel: Kernel, spec: AttentionSpec = SIGMOID) -> Kernel:
    return run_pipeline(kernel, propose(spec, kernel))


def probs(kernel: Kernel) -> list[str]:
    return print_stmts(kernel.region("row_probs").body).split("\n")


@pytest.mark.parametrize("arch", GOLDEN_NAMES)
def test_a_sigmoid_with_a_bias_has_one_special_function_where_weights_are_small(arch: str) -> None:
    made = target(golden_kernel(arch))
    assert probs(made) == [
        "w = exp2(s * p.exponent_scale - p.weight_bias)",
        "large = rowmax(w) > 0.022",
        "s = w - w * w",
        "if any_lane(large):",
        "    s = where(large, where(w > 1000000000.0, 1.0, w * rcp(1.0 + w)), s)",
    ]
    assert probs(without_series(made)) == ["s = rcp(1.0 + exp2(p.weight_bias - s * p.exponent_scale))"]


def test_without_a_bias_weights_are_not_small() -> None:
    made = target(golden_kernel("sm80"), WITHOUT_BIAS)
    assert probs(made) == ["s = rcp(1.0 + exp2(-(s * p.exponent_scale)))"]
    assert without_series(made) is made


def with_number(kernel: Kernel, old: float, new: float) -> Kernel:
    def change(node: Node) -> Node:
        return FloatLit(new) if node == FloatLit(old) else node

    regions = (rewrite(r, change) if r.name == "row_probs" else r for r in kernel.regions)
    return replace(kernel, regions=tuple(regions))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("old", "new"), [(LONGEST, 2 * LONGEST), (LONGEST, -1.0), (SATURATED, 1e3), (1.0, 2.0)])
def test_another_series_is_none(old: float, new: float) -> None:
    made = target(golden_kernel("sm80"))
    assert prove_part(made, SIGMOID, "weight").proved
    wrong = with_number(made, old, new)
    assert without_series(wrong) is wrong
    assert not prove_part(wrong, SIGMOID, "weight").proved


def test_the_series_is_as_near_as_it_says() -> None:
    e = torch.linspace(0, LONGEST, 100_001, dtype=torch.float32)
    exact = e.double() / (1 + e.double())
    assert bool((((e - e * e).double() - exact).abs() <= 2.0**-11 * exact).all())
