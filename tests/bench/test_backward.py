"""The tables of the backward pass, of one small variant on the emulator, with a clock that does not run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench import backward
from bench.backward import build_one, check_backward, check_table
from bench.backward_speed import Timed, _build, backward_table, time_backward
from bench.row import faults_of
from bench.speed import Measure
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.ir.spec import Shape
from cubridge.judge.plan import Case
from tests.bench.test_lists import clock

SHAPE = Shape(1, 2, 1, 70, 130, 64)


def test_gradients_are_judged_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "gradient_cases", lambda spec, dim: [Case("random", replace(SHAPE, D=dim))])
    device = PtxDevice(schedules=ONE_SCHEDULE)
    built = build_one(("causal_bottom_right", "bf16", 64))
    assert built.fault == "" and not built.mutants
    lowered = built.texts
    assert lowered is not None
    built.mutants = {"dq of half the size": (*lowered[:2], _wrong(lowered[2]))}
    right, told = check_backward([built], device)
    assert right.fault == told.fault == "" and right.worst <= 1.0 < told.worst
    assert check_table([right, told]).splitlines()[-1].split("|")[1:4] == [
        " causal_bottom_right ",
        "        1 ",
        "      0 ",
    ]
    built.texts = built.mutants.pop("dq of half the size")
    (wrong,) = check_backward([built], device)
    assert "dq at" in wrong.fault and ", expected" in wrong.fault
    (missing,) = check_backward([build_one(("causal_bottom_right", "bf16", 96))], device)
    assert missing.fault


def test_it_is_timed_beside_its_peers() -> None:
    (timed,) = _build([Timed("causal_bottom_right", SHAPE)], "sm_90a")
    wrong = Timed("causal_bottom_right", replace(SHAPE, D=96))
    row, missing = time_backward(
        [timed, wrong], PtxDevice(schedules=ONE_SCHEDULE), Measure(["sdpa", "fa3"], 1, clock=clock)
    )
    assert row.timings["sm90a"].median == 1.0 and "sm90a" in backward_table([row])
    assert row.flops == 2.5 * 4.0 * 2 * 64 * (torch.ones(70, 130).tril(60).sum().item())
    assert row.timings.keys() == {"SDPA mask", "sm90a"} == {*row.differences, "sm90a"}
    assert missing.fault == "RuntimeError: not built" and faults_of([row]) == []


def _wrong(text: backward.KernelText) -> backward.KernelText:
    source = text.source
    data = source.data.replace(b"scale(dq, p.grad_scale);", b"scale(dq, 0.5f * p.grad_scale);")
    assert data != source.data
    return replace(text, source=type(source)(source.name, data))
