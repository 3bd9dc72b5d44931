"""Enumerated faults: all kinds occur, a sample of both kernels is judged, and what is called no change is none."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
import torch

from cubridge.engine.order.engine import run_order
from cubridge.ir.nodes import Kernel
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text
from cubridge.ir.source import SourceFile
from cubridge.judge.faults.catalog import Fault, enumerate_faults
from cubridge.judge.faults.verdicts import (
    Judge,
    Slope,
    Verdict,
    judge_fault,
    make_judge,
    sloped_inputs,
    tile_sizes,
    trial_launches,
)  # fmt: skip
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel

OPERATORS = {
    "delete", "duplicate", "swap with next", "slot + 1", "count + 1", "count - 1", "tile + 1", "tile - 1", "index + 1", "index - 1",
    "operand swapped",
}  # fmt: skip


@cache
def all_faults(name: str) -> tuple[Fault, ...]:
    return tuple(enumerate_faults(golden_kernel(name)))


@cache
def judge(name: str) -> Judge:
    return make_judge(golden_kernel(name), {"GROUP_HEADS": 2})


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_operator_finds_places(name: str) -> None:
    found = Counter(f.operator for f in all_faults(name))
    only_sm90a = {"phase flipped", "bytes halved"}
    assert set(found) == OPERATORS | (only_sm90a if name == "sm90a" else set[str]())
    assert found["delete"] > 40


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_fault_changes_the_text_and_reads_back(name: str) -> None:
    source = to_text(golden_kernel(name))
    for fault in all_faults(name)[:: len(all_faults(name)) // 12]:
        text = to_text(fault.kernel)
        assert text != source
        assert parse(SourceFile.from_text("fault.cuir", text)) == fault.kernel


@pytest.mark.parametrize("name,step", [("sm80", 11), ("sm90a", 41)])
def test_no_sampled_fault_is_missed(name: str, step: int) -> None:
    judgements = [judge_fault(judge(name), f) for f in all_faults(name)[::step]]
    assert [str(j.fault) for j in judgements if j.verdict is Verdict.MISSED] == []
    assert sum(j.verdict is Verdict.CAUGHT for j in judgements) > 10


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_deleting_a_write_of_row_state_is_caught(name: str) -> None:
    deleted = [f for f in all_faults(name) if f.operator == "delete" and f.what.startswith("row.")]
    assert len(deleted) >= 6
    judgements = [judge_fault(judge(name), f) for f in deleted]
    assert {j.verdict for j in judgements} == {Verdict.CAUGHT}


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_faults_inside_regions_are_told_by_values(name: str) -> None:
    """What the order engine cannot see."""
    wanted = {
        "index + 1: s = where(j + 1 < Lk, s, -inf)",
        "index - 1: s = where(j - 1 < Lk, s, -inf)",
        "duplicate: o = o * row.o_scale",
    }
    found = [f for f in all_faults(name) if str(f) in wanted]
    assert len(found) == 3
    assert {judge_fault(judge(name), f).by for f in found} == {"values"}


@pytest.mark.parametrize("name,step", [("sm80", 4), ("sm90a", 25)])
def test_what_is_called_no_change_is_none(name: str, step: int) -> None:
    """The engine sees no fault and the same life of every tile where neighbours commute, or a wait follows itself."""
    unchanged = [f for f in all_faults(name) if f.no_change is not None and f.path.steps[0] == "body"]
    traces = run_order(golden_kernel(name))[1]
    for fault in unchanged[::step]:
        assert run_order(fault.kernel) == ((), traces), str(fault)


def test_equivalent_needs_a_proof() -> None:
    """A wait for one group more is harmless, and said to be so with the reason; a wait for one less is not."""
    tighter, looser = (
        next(f for f in all_faults("sm80") if str(f) == f"count {sign} 1: wait_group({n})")
        for sign, n in (("-", 0), ("+", 2))
    )
    harmless = judge_fault(judge("sm80"), tighter)
    assert harmless.verdict is Verdict.EQUIVALENT
    assert "same steps with the same operands" in harmless.reason
    assert judge_fault(judge("sm80"), looser).verdict is Verdict.CAUGHT


def test_a_judge_needs_a_kernel_without_faults() -> None:
    from cubridge.ir.diagnostics import CuError

    fault = next(f for f in all_faults("sm80") if str(f) == "delete: block_sync()")
    with pytest.raises(CuError):
        make_judge(fault.kernel)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_trials_cover_tiles_and_slopes(name: str) -> None:
    kernel: Kernel = golden_kernel(name)
    queries, keys, _ = tile_sizes(kernel)
    trials = trial_launches(kernel)
    assert {slope for *_, slope in trials} == set(Slope)
    assert {lse for _, lse, _ in trials} == {True, False}
    assert any(shape.Lk > 3 * keys and shape.Lk % keys and shape.Lq > queries for shape, *_ in trials)
    assert any(shape.Lk == 0 for shape, *_ in trials)


def test_sloped_scores_rise_by_more_than_a_maximum_may_lag() -> None:
    shape = trial_launches(golden_kernel("sm80"))[0][0]
    for slope, sign in ((Slope.RISING, 1.0), (Slope.FALLING, -1.0)):
        q, k, _ = (x.float() for x in sloped_inputs(shape, 64, torch.bfloat16, slope))
        scores = (q @ k.repeat_interleave(2, 1).mT * shape.D**-0.5).mean(dim=(0, 1, 2))
        assert sign * float(scores[64:].mean() - scores[:64].mean()) > 8 / 1.4427
