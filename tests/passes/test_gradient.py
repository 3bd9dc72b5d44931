"""Backward kernels for the gradients of references: their regions, what they compute, and their texts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

import pytest
import torch

from cubridge.backend.launch.backward import BackwardLauncher
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.lower import lower_kernel, patched_source
from cubridge.driver.reference import TracedReference, read_reference
from cubridge.driver.transfer import transfer_before_checks
from cubridge.engine.dense_gradient import Gradients
from cubridge.ir.algebra.exprs import both
from cubridge.ir.diagnostics import CuError
from cubridge.ir.fitting import fitting_shapes
from cubridge.ir.gradient import GradientSpec
from cubridge.ir.nodes import FloatLit, IntLit, Name, QueryTileList, TileList
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_function
from cubridge.ir.spec import Shape
from cubridge.ir.types import DType
from cubridge.judge.checker import approximations
from cubridge.judge.gradient_problem import GradientProblem, make_gradient_problem
from cubridge.judge.gradient_runs import Pass, run_pass, saved
from cubridge.judge.list_makers import check_makers
from cubridge.judge.list_mutants import wrong_walks
from cubridge.judge.well_formed import find_faults
from cubridge.passes.gradient import Targets, backward_targets
from cubridge.passes.list_check import list_fault
from cubridge.passes.mask import IN_RANGE
from tests.support.backward import BACKWARD, lifted_backward
from tests.support.readings import reading
from tests.support.variants import EXAMPLES


@cache
def targets(name: str) -> Targets:
    return targets_of(reading(name), reading(name).gradient())


def targets_of(traced: TracedReference, gradient: GradientSpec) -> Targets:
    forward = lift_kernel(choose_kernel("sm90a"), "bf16", 64).kernel
    forward = transfer_before_checks(forward, traced.attention.spec).kernel
    return backward_targets(gradient, forward, *(lifted_backward(name, 64) for name in BACKWARD))


SMALL: Final = Shape(1, 4, 2, 130, 150, 64)


def problem(name: str, kind: str = "index-coded V", shape: Shape = SMALL) -> GradientProblem:
    attention = reading(name).attention
    (shape,) = fitting_shapes(attention.spec, [shape])
    approximated = approximations(targets(name).pairs)
    return make_gradient_problem(attention, reading(name).gradient(), kind, shape, 0, "bf16", approximated)


REGIONS: Final = {
    ("softcap", "score_grad"): """
    x_0 = (lse + log2(w)) * p.slope_scale
    ds = where(w > 0.0, ds * (1.0 - x_0 * x_0), 0.0)""",
    ("comb", "score"): """
    x_0 = tanh_approx(s * p.score_scale)
    kept.slope = 1.0 - x_0 * x_0
    s = x_0""",
    ("relu_causal", "query_sequence"): """
    lo = tile.kv_start // BLOCK_Q
    hi = ceil_div(Lq, BLOCK_Q)
    full_lo = ceil_div(tile.kv_start + BLOCK_KV - 1, BLOCK_Q)
    full_hi = minimum(Lq, where(tile.kv_start + BLOCK_KV <= Lk, Lq, tile.kv_start + BLOCK_KV - 1)) // BLOCK_Q
    return QuerySequence(lo=lo, hi=hi, full_lo=full_lo, full_hi=full_hi)""",
    ("alibi", "score"): """
    s = s + tile.slopes * f32(j - (i + Lk - Lq))""",
    ("alibi", "tile_setup"): """
    tile.slopes = p.slopes[tile.h] * p.slopes_scale""",
    ("sigmoid", "mask"): """
    s = where((j < Lk) & (i < Lq), s, -inf)""",
    ("relu_causal", "probs"): """
    s = maximum(s, 0.0) * p.output_scale""",
    ("relu_causal", "probs_grad"): """
    dp = where(w > 0.0, dp * p.weight_scale, 0.0)""",
    ("documents_causal", "mask"): """
    s = where((j <= minimum(i, Lk - 1)) & (p.doc[tile.b, j] == p.doc[tile.b, maximum(minimum(i, Lq - 1), 0)]), s, -inf)""",
    ("documents_causal", "query_sequence"): """
    list = tile.b * ceil_div(Lk, p.list_keys) + tile.kv_start // p.list_keys
    count = p.tiles[list, 0]
    masked = p.tiles[list, 1]
    return QuerySequence(list=list, count=count, masked=masked)""",
    ("documents_causal", "query_tile"): """
    return p.tiles[queries.list, t + 2]""",
    ("comb", "score_grad"): """
    ds = ds * kept.slope""",
}


@pytest.mark.parametrize(("name", "region"), REGIONS, ids=lambda x: x)
def test_regions(name: str, region: str) -> None:
    body = print_function(targets(name).pairs.region(region)).split(":", 1)[1]
    assert body == REGIONS[name, region]


@pytest.mark.parametrize("name", ["alibi", "relu_causal", "global_sliding_window", "documents_causal"])
def test_gradients_are_right(name: str) -> None:
    kernels = targets(name)
    assert [find_faults(k) for k in (kernels.rows, kernels.pairs, kernels.last)] == [(), (), ()]
    p = problem(name)
    assert p.accepts(run_pass(Pass(kernels.rows, kernels.pairs, kernels.last), reading(name).attention, p))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem not in ("train_tiny",)))
def test_gradients_of_all_examples(name: str) -> None:
    kernels = targets(name)
    for kind in ("random", "large scores"):
        p = problem(name, kind, Shape(2, 2, 2, 150, 257, 64))
        assert p.accepts(run_pass(Pass(kernels.rows, kernels.pairs, kernels.last), reading(name).attention, p))


def test_lists_of_query_tiles_are_walked_right() -> None:
    """The check of passes finds every other walk, and gradients those that this problem shows, whose batches are alike."""
    kernels, p = targets("documents_causal"), problem("documents_causal", shape=Shape(2, 2, 2, 257, 257, 64))
    keep = next(f.type for f in kernels.pairs.params if isinstance(f.type, TileList)).keep
    assert list_fault(kernels.pairs, both(keep, IN_RANGE)) is None
    found: list[str] = []
    for name, wrong in wrong_walks(kernels.pairs):
        got = run_pass(Pass(kernels.rows, wrong, kernels.last), reading("documents_causal").attention, p)
        assert list_fault(wrong, both(keep, IN_RANGE)) is not None, name
        if not p.accepts(got):
            found.append(name)
    assert found == ["last listed tile lost", "masked tile walked as full", "list of the next tile"]


def test_lists_that_no_backward_kernel_walks() -> None:
    pairs = targets("documents_causal").pairs
    (listed,) = (f for f in pairs.params if isinstance(f.type, TileList))
    kind = listed.type
    assert isinstance(kind, QueryTileList)

    def said(wrong: TileList) -> str:
        params = tuple(replace(f, type=wrong) if f is listed else f for f in pairs.params)
        return find_faults(replace(pairs, params=params))[0].message

    assert said(TileList(kind.rows, Name("BLOCK_KV"), kind.keep, kind.axes)).endswith("`backward` walks no such tiles")
    assert (
        said(replace(kind, axes=(Name("B"), Name("Hq")))) == "a list of query tiles is for all query heads of its keys"
    )
    assert said(replace(kind, keys=FloatLit(0.5))) == "the rows or keys of a list are an integer"
    assert said(replace(kind, rows=IntLit(0))) == "this must be positive"


def test_a_mask_of_each_head_has_no_lists_of_query_tiles() -> None:
    """They would be for all query heads of a key head."""
    traced = reading("documents_causal")
    forward = transfer_before_checks(
        lift_kernel(choose_kernel("sm90a"), "bf16", 64).kernel, traced.attention.spec
    ).kernel
    lists = next(f for f in forward.params if isinstance(f.type, TileList))
    by_head = replace(lists, type=replace(lists.type, axes=(Name("B"), Name("Hq"))))
    forward = replace(forward, params=tuple(by_head if f is lists else f for f in forward.params))
    made = backward_targets(traced.gradient(), forward, *(lifted_backward(name, 64) for name in BACKWARD))
    assert not any(isinstance(f.type, TileList) for f in made.pairs.params)


@pytest.mark.parametrize("name", ["softcap", "comb", "documents_causal"])
def test_patched_texts_say_so_and_are_right(name: str) -> None:
    """The text lifts to its target again, and as PTX is within the bound."""
    kernels, texts = targets(name), [choose_kernel(n) for n in BACKWARD]
    made = []
    for text, kernel in zip(texts, (kernels.rows, kernels.pairs, kernels.last), strict=True):
        patched = lower_kernel(text, lift_kernel(text, "bf16", 64), kernel, "bf16", 64)
        made.append(text.with_text(patched_source(patched)))
    p = problem(name, shape=Shape(1, 2, 1, 70, 90, 64))
    check_makers(PtxDevice(ONE_SCHEDULE), made[1], DType.BF16, 64)
    launch = BackwardLauncher.of(PtxDevice(), (made[0], made[1], made[2]), say=lambda _: None)
    out, lse = saved(reading(name).attention, p)
    assert p.accepts(Gradients(*launch(p.q, p.k, p.v, out, lse, p.dout, p.dlse, p.captures)))


def test_captured_flags_and_numbers_are_read_where_the_derivative_asks_for_them() -> None:
    """Flags are integers of the kernel; of the cap the forward kernel keeps what the host makes of it alone."""

    def capped(q, k, v, keep, bias, cap):
        s = cap * torch.tanh(q @ k.mT * q.shape[-1] ** -0.5 / cap) + bias
        return torch.softmax(s.masked_fill(~keep, -torch.inf), -1) @ v

    def extra_inputs(shape, device):
        return {"keep": torch.ones(shape.Lk) > 0, "bias": torch.zeros(shape.Lk), "cap": 20.0}

    traced = read_reference(capped, extra_inputs=extra_inputs)
    pairs = targets_of(traced, traced.gradient()).pairs
    assert find_faults(pairs) == ()
    assert "kept.slope = 1.0 - x_0 * x_0" in print_function(pairs.region("score"))
    assert "p.keep[j] != 0" in print_function(pairs.region("mask"))


@pytest.mark.parametrize("change", ["saved", "A", "delta", "over", "kept"])
def test_what_the_kernels_have_no_place_for(change: str) -> None:
    g = reading("softcap").gradient()
    changes: dict[str, GradientSpec] = {
        "saved": replace(g, saved=("out", "m")),
        "A": replace(g, acc_grad=parse_expr("dout * out")),
        "delta": replace(g, coefficients=(replace(g.coefficients[0], each=FloatLit(1.0)),)),
        "over": replace(g, mask=parse_expr("j < i")),
        "kept": replace(g, score_grad=Name("x")),
    }
    with pytest.raises(CuError) as error:
        targets_of(reading("softcap"), changes[change])
    assert error.value.diagnostics[0].code == "CU534"
