"""The tables of the backward pass, of one small variant on the emulator, with a clock that does not run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bench import backward
from bench.backward import build_one, check_backward, check_table, speed_table, time_backward
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.ir.spec import Shape
from tests.bench.test_lists import clock

SHAPE = Shape(1, 2, 1, 70, 130, 64)


def test_gradients_are_judged_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "SHAPES", (replace(SHAPE, D=0),))
    device = PtxDevice(schedules=ONE_SCHEDULE)
    built = build_one("causal_bottom_right", "bf16", 64, None)
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
    (missing,) = check_backward([build_one("causal_bottom_right", "bf16", 96, None)], device)
    assert missing.fault
    long = build_one("causal_bottom_right", "bf16", 64, SHAPE)
    (row,) = time_backward([long], SHAPE, device, ["sdpa"], 1, clock)
    assert row.timings["sm90a"].median == 1.0 and "sm90a" in speed_table([row])
    assert row.flops == 2.5 * 4.0 * 2 * 64 * (torch.ones(70, 130).tril(60).sum().item())


def _wrong(text: backward.KernelText) -> backward.KernelText:
    source = text.source
    data = source.data.replace(b"scale(dq, p.grad_scale);", b"scale(dq, 0.5f * p.grad_scale);")
    assert data != source.data
    return replace(text, source=type(source)(source.name, data))
