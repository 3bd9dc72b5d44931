"""`tests/cases/lower/*.cuir`: definitions that replace those of the source, and the diff or the error that lowering them gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cubridge.ir.diagnostics import CuError
from tests.backend.text.lowering import CASES, lowered, small_kernel

EXPECTED = "# ---- expected ----\n"


@pytest.mark.parametrize("path", sorted(CASES.glob("*.cuir")), ids=lambda p: p.stem)
def test_case(path: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    changes, expected = path.read_text(encoding="utf-8").split(EXPECTED)
    try:
        result = lowered(changes)
        shown = result.patch.decode()
    except CuError as error:
        result, shown = None, f"{error}\n"
    if request.config.getoption("--update-cases", default=False):
        path.write_text(changes + EXPECTED + shown, encoding="utf-8")
        return
    assert shown == expected
    if result is not None and result.patch:
        _git_applies(result.patch, result.text, tmp_path)


def _git_applies(patch: bytes, text: bytes, folder: Path) -> None:
    (folder / "kernel.cu").write_bytes(small_kernel().data)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patch, check=True)
    assert (folder / "kernel.cu").read_bytes() == text
