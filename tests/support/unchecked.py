"""What `cubridge.attention` makes, without the checks of kernels, which take seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.driver.backward import NAMES, Backward, Lowered, lower_backward
from cubridge.driver.compiled import compile_adapted
from cubridge.driver.report import BackwardReport, Changed
from cubridge.judge.findings import CaseResult, Findings, MutantResult, Verdict


def unchecked_backward(lowered: Lowered) -> Backward:
    """With a report of nothing but that it is right."""
    case = CaseResult("value engine", "1,1,1,1,1,64", "random", 0.5, True, "")
    patched = zip(NAMES, lowered.patched, strict=True)
    changed = {name: Changed(p.regions_changed, p.lines_added, p.lines_removed) for name, p in patched}
    return Backward(lowered, BackwardReport("", changed, (case,), (MutantResult("delta missing", "value engine"),), ()))


def unchecked(monkeypatch: pytest.MonkeyPatch, kept: Path) -> list[str]:
    """Adaptations are kept in a folder of their own, and noted by the names of their references."""
    names: list[str] = []
    emulator = PtxDevice(ONE_SCHEDULE)

    def adapt(reference, kernel, shape, dtype, grad):
        names.append(reference.name)
        found = adapt_unchecked(reference, kernel, shape, str(dtype))
        findings = Findings((), (MutantResult("mask dropped", "value engine"),), (), Verdict.INTERPRETED, ())
        report, backward = found.report(findings), unchecked_backward(lower_backward(found)) if grad else None
        return Adaptation(found, replace(report, backward=None if backward is None else backward.report), {}, backward)

    def compile_for(adapted, device, backward=None):
        assert device == "emulator"
        return compile_adapted(adapted, lambda _: emulator, backward=backward, check=False, device=device)

    monkeypatch.setattr("cubridge.driver.kept.default_cache_dir", lambda: kept)
    monkeypatch.setattr("cubridge.driver.kept.adapt", adapt)
    for module in ("kept", "adaptation"):
        monkeypatch.setattr(f"cubridge.driver.{module}.compile_for", compile_for)
    return names
