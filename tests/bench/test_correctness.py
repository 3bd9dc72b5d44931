"""The judging part of the bench, on the emulator: it accepts the right kernel and rejects wrong ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.build import Built, Task, alike, file_of, load, save, tasks
from bench.correctness import check, check_mutants, failures, mutant_table, mutants_hold, outcome_table
from bench.text_mutants import text_mutants
from bench.variants import VARIANTS
from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.launch.device import KernelText
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.frontend.contract import read_contract
from cubridge.ir.source import SourceFile
from cubridge.ir.spec import Shape
from cubridge.judge.problem import Problem

SHAPE = Shape(1, 4, 2, 70, 150, 64)
DEVICE = PtxDevice(ONE_SCHEDULE)
CONTRACT = KERNELS_DIR / "sm80" / "attention_forward.toml"


def problem() -> Problem:
    generator = torch.Generator().manual_seed(1)
    sides = ((SHAPE.Hq, SHAPE.Lq), (SHAPE.Hk, SHAPE.Lk), (SHAPE.Hk, SHAPE.Lk))
    q, k, v = (torch.randn(SHAPE.B, h, n, SHAPE.D, generator=generator).bfloat16() for h, n in sides)
    keys, values = (x.double().repeat_interleave(2, 1) for x in (k, v))
    scores = q.double() @ keys.mT * SHAPE.D**-0.5
    weights, lse = torch.softmax(scores, -1), torch.logsumexp(scores, -1)
    out = weights @ values
    bound = 2**-7 * (weights @ values.abs() + out.abs())
    return Problem(SHAPE, "random", q, k, v, {}, out, bound, lse, torch.full_like(lse, 1e-4), 0.5)


def text(source: SourceFile | None = None) -> KernelText:
    contract = read_contract(CONTRACT, source)
    return KernelText(source or SourceFile.read(CONTRACT.with_suffix(".cu")), contract)


@pytest.fixture(scope="module")
def built() -> Built:
    item = Built(Task("full", "bf16", 64), kernels={"sm80": text()}, problems=[problem()], mutant_problems=[problem()])
    chosen = ("zero output", "heads tiled", "LSE in base 2", "host constant wrong")
    mutants = dict(text_mutants(item.kernels["sm80"].source))
    item.mutants = [("sm80", name, text(mutants[name])) for name in chosen]
    return item


def test_the_right_kernel_is_accepted(built: Built) -> None:
    outcomes = check([built], DEVICE)
    assert [o.accepted for o in outcomes] == [True] and failures(outcomes) == []
    assert 0 < outcomes[0].worst <= 1 and outcomes[0].lse is not None and outcomes[0].reference == 0.5
    assert "| full " in outcome_table(outcomes)


def test_wrong_kernels_are_rejected(built: Built) -> None:
    mutants = check_mutants([built], DEVICE)
    assert all(m.applies and m.rejected and m.worst > 1 for m in mutants) and mutants_hold(mutants)
    wrong = replace(built, kernels={"sm80": built.mutants[0][2]}, mutants=[])
    (outcome,) = check([wrong], DEVICE)
    assert not outcome.accepted and "not" in failures([outcome])[0]


def test_a_judge_that_accepts_a_mutant_fails() -> None:
    item = Built(Task("full", "bf16", 64), kernels={"sm80": text()}, mutant_problems=[problem()])
    loose = item.mutant_problems[0]
    item.mutant_problems = [replace(loose, bound=loose.bound * 1e6, lse_bound=loose.lse_bound * 1e6)]
    mutants = dict(text_mutants(item.kernels["sm80"].source))
    item.mutants = [("sm80", "heads tiled", text(mutants["heads tiled"]))]
    found = check_mutants([item], DEVICE)
    assert found[0].applies and not found[0].rejected and not mutants_hold(found)
    assert "heads tiled" in mutant_table(found)


def test_too_few_mutants_fail(built: Built) -> None:
    assert not mutants_hold([]) and not mutants_hold(check_mutants([built], DEVICE)[:3])


def test_what_is_built_travels_as_files(built: Built, tmp_path) -> None:
    save(tmp_path, built)
    (again,) = load(tmp_path, [built.task])
    assert again.task == built.task and again.kernels == built.kernels
    assert torch.equal(again.problems[0].out, built.problems[0].out)


def test_each_variant_is_timed_once_and_checked_in_every_form() -> None:
    shapes = [Shape(2, 32, 32, length, length, 128) for length in (4096, 8192)]
    wanted = tasks(list(VARIANTS), shapes, check=True)
    assert len(wanted) == len({file_of(Path(), task) for task in wanted}) == 6 * len(VARIANTS)
    assert [t.long for t in tasks(["full"], shapes, check=False)] == shapes
    assert [len(group) for group in alike(wanted)] == [2] * len(VARIANTS) + [1] * 4 * len(VARIANTS)
