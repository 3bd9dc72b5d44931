"""`cubridge.adapt` as a library: what it gives and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import cubridge
from tests.support.variants import EXAMPLES

SMALL = cubridge.Shape(1, 2, 1, 70, 70, 64)


def test_an_element_type_that_no_kernel_has() -> None:
    with pytest.raises(cubridge.CuError, match="`fp8` is no element type") as caught:
        cubridge.adapt(EXAMPLES / "full.py", dtype="fp8")
    assert caught.value.diagnostics[0].code == "CU809"


def test_what_is_accepted_and_what_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    made = cubridge.adapt(EXAMPLES / "full.py", shape=SMALL)
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
