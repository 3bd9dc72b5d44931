"""The timing of an adapted kernel, on the emulator with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.stopwatch import Step
from cubridge.driver.suites.bench import bench, bench_folder
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Shape
from cubridge.judge.attention import Attention
from cubridge.show.view import read_speed, view_json
from tests.support.specs import softmax_spec

SHAPE = Shape(1, 2, 1, 65, 130, 64)


def half(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, extra: object) -> torch.Tensor:
    del extra
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)


def attention() -> Attention:
    spec = softmax_spec(mask="True")
    return Attention("full", spec, lambda shape: {}, lambda shape, extra, inputs: {}, half, half)  # type: ignore[arg-type]


def clock(work: Callable[[], object], count: int) -> float:
    work()
    return 4.0 * count


def test_a_table_of_what_was_timed() -> None:
    kernel, told = choose_kernel("sm80").text, list[Step]()
    measured = bench(
        attention(), kernel, "bf16", SHAPE, ("eager",), PtxDevice(ONE_SCHEDULE), clock, rounds=2, progress=told.append
    )
    assert [(s.what, s.done, s.total) for s in told] == [("bench", n, 4) for n in range(1, 5)]
    assert set(measured.timings) == {"cubridge", "eager"}
    assert measured.flops == 4 * 2 * 65 * 130 * 64
    head, *lines = measured.to_text().splitlines()
    assert str(SHAPE) in head and len(lines) == 2 and all("4.000 ms" in line for line in lines)
    speed = measured.to_view("emulator")
    assert read_speed("bench.json", view_json(speed)) == speed
    assert f"{speed.timed[0].tflops:.0f} TFLOP/s" in lines[0]


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(CuError, match="`xformers` is no peer"):
        bench(attention(), choose_kernel("sm80").text, "bf16", SHAPE, ("xformers",), PtxDevice(), clock)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_a_tool_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CuError) as caught:
        bench_folder(tmp_path, ("eager",), None)
    assert caught.value.exit_code == 5
