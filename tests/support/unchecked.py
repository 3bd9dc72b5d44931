"""What `cubridge.attention` makes, without the checks of kernels, which take seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.driver.compiled import compile_adapted
from cubridge.judge.findings import Findings, MutantResult, Verdict


def unchecked(monkeypatch: pytest.MonkeyPatch, kept: Path) -> list[str]:
    """Adaptations are kept in a folder of their own, and noted by the names of their references."""
    names: list[str] = []
    emulator = PtxDevice(ONE_SCHEDULE)

    def adapt(reference, kernel, shape, dtype):
        names.append(reference.name)
        found = adapt_unchecked(reference, kernel, shape, str(dtype))
        findings = Findings((), (MutantResult("mask dropped", "value engine"),), (), Verdict.INTERPRETED, ())
        return Adaptation(found, found.report(findings), {})

    def compile_for(adapted, device, backward=None):
        assert device == "emulator"
        return compile_adapted(adapted, lambda _: emulator, backward=backward, check=False, device=device)

    monkeypatch.setattr("cubridge.driver.kept.default_cache_dir", lambda: kept)
    monkeypatch.setattr("cubridge.driver.kept.adapt", adapt)
    for module in ("kept", "adaptation"):
        monkeypatch.setattr(f"cubridge.driver.{module}.compile_for", compile_for)
    return names
