"""The native library: it is refused where it is missing, or where other sources lie beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.backend.ptx import library as module
from cubridge.backend.ptx.build import NATIVE, sources_digest
from cubridge.backend.ptx.library import PATH, library
from cubridge.ir.diagnostics import CuError


def refusal(path: Path) -> str:
    with pytest.raises(CuError) as caught:
        library.__wrapped__(path)
    assert caught.value.exit_code == 5 and caught.value.diagnostics[0].code == "CU830"
    return caught.value.diagnostics[0].message


def test_a_library_that_was_not_built(tmp_path: Path) -> None:
    assert "cannot be loaded" in refusal(tmp_path / "libptx.so")


def test_a_library_of_other_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sources_digest", lambda: "0" * 32)
    assert "built from other sources" in refusal(PATH)


def test_the_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    for source in NATIVE.iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    assert sources_digest(tmp_path) == sources_digest()
    (tmp_path / "base.h").write_bytes((tmp_path / "base.h").read_bytes() + b"\n")
    changed = sources_digest(tmp_path)
    (tmp_path / "base.h").rename(tmp_path / "basis.h")
    assert len({sources_digest(), changed, sources_digest(tmp_path)}) == 3
