"""The doctor names every part, here or missing, and never fails itself."""

from __future__ import annotations

import pytest
import torch

from cubridge.driver import doctor
from cubridge.driver.doctor import PARTS, Part, examine_machine
from cubridge.ir.diagnostics import CuError, Diagnostic


def missing() -> str:
    raise ImportError("No module named 'x'")


def broken() -> str:
    raise CuError(Diagnostic("CU820", "no device"))


def test_every_part_has_a_line() -> None:
    lines, complete = examine_machine()
    assert complete and len(lines) == 1 + len(PARTS)
    assert all(line.startswith(("ok       ", "missing  ")) for line in lines)
    gpu = next(line for line in lines if " GPU: " in line)
    assert gpu.startswith("ok") == torch.cuda.is_available()


@pytest.mark.parametrize("required", [False, True])
def test_a_missing_part_says_what_does_not_work(monkeypatch: pytest.MonkeyPatch, required: bool) -> None:
    parts = (Part("x", missing, "y does not work", required), Part("card", broken, "z does not"))
    monkeypatch.setattr(doctor, "PARTS", parts)
    lines, complete = examine_machine()
    assert lines[1:] == [
        "missing  x: No module named 'x'; without it y does not work",
        "missing  card: no device; without it z does not",
    ]
    assert complete is not required
