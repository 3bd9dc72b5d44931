"""The kernel that makes the lists of a text is run before the text is: one that makes other lists is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cubridge.backend.launch import tile_plan
from cubridge.backend.launch.device import KernelText
from cubridge.backend.ptx.device import ONE_SCHEDULE
from cubridge.backend.text.list_mask import mask_text
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.sandbox import texts
from cubridge.ir.diagnostics import CuError
from cubridge.judge.tools import Here
from tests.backend.launch.list_makers import wrong_header
from tests.support.variants import VARIANTS


@cache
def text() -> KernelText:
    return adapt_unchecked(VARIANTS["documents_causal"].path, "sm80").text


def refused(of: KernelText) -> str:
    with pytest.raises(CuError) as caught:
        Here().emulator(of, "bf16")
    assert caught.value.diagnostics[0].code == "CU844" and caught.value.exit_code == 3
    return caught.value.diagnostics[0].message


def test_what_passes_make_is_taken() -> None:
    assert Here().emulator(text(), "bf16").stage == "emulator"


def test_a_mask_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty tiles are listed, which no result shows."""

    def wrong(*of: object) -> dict[str, str]:
        said = mask_text(*of)  # pyright: ignore[reportArgumentType]
        assert "(key.j <= row.i)" in said["LIST_KEEP"]
        return said | {"LIST_KEEP": "true", "LIST_TRUTH": "Truth(true, false)"}

    monkeypatch.setattr(tile_plan, "mask_text", wrong)
    assert "the mask says" in refused(text())
    assert Here().emulator(text(), "bf16", schedules=ONE_SCHEDULE).stage == "emulator"
    with pytest.raises(CuError, match="the mask says"):
        texts.build(text(), "bf16", 64, texts.SCHEDULES)


def test_wrong_bounds(tmp_path: Path) -> None:
    header = wrong_header(tmp_path, "common/spans.cuh", "(b.hi < a.lo)", "(b.hi <= a.lo)")
    assert "puts" in refused(replace(text(), include_dirs=(*header, *text().include_dirs)))
