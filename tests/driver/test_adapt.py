"""`cubridge.adapt` as a library: what it gives and what it refuses."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

import cubridge
from cubridge.driver.stopwatch import Step
from tests.support.variants import EXAMPLES

SMALL = cubridge.Shape(1, 2, 1, 70, 70, 64)


@contextmanager
def wherever_it_is_called() -> Generator[None]:
    """As a model is, the first time: none of it may reach the checks."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
        yield
        assert torch.is_inference_mode_enabled() and torch.is_autocast_enabled("cpu")


def test_an_element_type_that_no_kernel_has() -> None:
    with pytest.raises(cubridge.CuError, match="`fp8` is no element type") as caught:
        cubridge.adapt(EXAMPLES / "full.py", dtype="fp8")
    assert caught.value.diagnostics[0].code == "CU809"


def test_what_is_accepted_and_what_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    steps: list[Step] = []
    with wherever_it_is_called():
        made = cubridge.adapt(EXAMPLES / "full.py", shape=SMALL, progress=steps.append)
    assert made.report.accepted, made.report
    assert [str(s) for s in steps[:5]] == [
        "read the kernel ..",
        "read the reference ..",
        "transfer ..",
        "lower ..",
        "check ..",
    ]
    assert [s.done for s in steps[5:]] == [*range(1, len(steps) - 4)] and len(steps) - 5 <= steps[5].total
    assert all(len(c.rows) == int(c.shape.split(",")[3]) and max(c.rows) == c.worst for c in made.report.cases)
    assert made._repr_html_().startswith("<iframe")
    assert made.report.accepted
    assert list(made.seconds)[4:] == ["check", "check: compile", "check: emulator"] and min(made.seconds.values()) > 0
    assert made.gradient().saved == ("out", "lse")
    assert repr(made) == f"Adaptation(attention -> sm80, bf16: {made.report.verdict})"
    with pytest.raises(cubridge.CuError) as caught:
        made.compile()
    assert (caught.value.diagnostics[0].code, caught.value.exit_code) == ("CU820", 5)
    with pytest.raises(cubridge.CuError, match="`tpu` is no device"):
        made.compile(device="tpu")
    q, k, v = (torch.randn(1, h, n, 64).bfloat16() for h, n in ((2, 33), (1, 70), (1, 70)))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(made.compile(device="emulator")(q, k, v), expected, rtol=2e-2, atol=2e-2)
    wrong = replace(made.report.cases[0], accepted=False)
    rejected = replace(made, report=replace(made.report, cases=(wrong, *made.report.cases[1:])))
    assert rejected.report.verdict == "rejected"
    assert rejected.report.to_json()["verdict"] == "rejected"
    with pytest.raises(cubridge.CuError) as caught:
        rejected.compile()
    assert (caught.value.diagnostics[0].code, caught.value.exit_code) == ("CU844", 3)
