"""What commands write: only on success, whole, and the same bytes for the same input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import cuirc, fails
from tests.support.golden_texts import golden_file

REFERENCE = """\
import torch


def attention(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    s = q @ k.mT * q.shape[-1] ** -0.5
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    return s.masked_fill(~keep, -torch.inf).softmax(-1) @ v
"""
FILES = {
    "kernel.cu", "kernel.patch", "source.cuir", "target.cuir", "pipeline.toml", "report.json", "report.md", "timings.json",
}  # fmt: skip


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cuir"
    path.write_text(golden_file("sm80").text, encoding="utf-8")
    return path


def test_an_output_that_is_there_stays_where_the_command_fails(kernel: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.cuir"
    output.write_text("as before", encoding="utf-8")
    fails(["opt", kernel, "-p", "no-pass", "-o", output], "CU501", 1)
    assert output.read_text(encoding="utf-8") == "as before"
    ended = cuirc("opt", kernel, "-p", "dce", "-o", output)
    assert (ended.code, ended.out) == (0, b"")
    assert output.read_bytes() == cuirc("opt", kernel, "-p", "dce").out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kernel.cuir", "out.cuir"]


@pytest.mark.parametrize("output", ["none/out.cuir", "."])
def test_an_output_that_cannot_be_written(output: str, kernel: Path, tmp_path: Path) -> None:
    ended = fails(["opt", kernel, "-p", "dce", "-o", tmp_path / output], "CU110", 1)
    assert f"{tmp_path / output}: " in ended.err
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.cuir"]


@pytest.mark.parametrize("folder", ["kernel.cuir", "kernel.cuir/below", "/proc/none"])
def test_an_output_folder_that_cannot_be_written(folder: str, kernel: Path, tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE, encoding="utf-8")
    ended = fails(["adapt", reference, "-o", tmp_path / folder], "CU112", 1)
    assert "help: give a folder of your own with -o" in ended.err


@pytest.mark.parametrize("name", ["none", "empty", "other"])
def test_a_folder_that_adapt_did_not_write(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    if name != "none":
        folder.mkdir()
    if name == "other":
        (folder / "report.json").write_text("[1, 2]", encoding="utf-8")
    fails(["check", folder], "CU842" if name == "other" else "CU110", 1)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reference.py").write_text(REFERENCE, encoding="utf-8")
    shape = "1,2,1,130,70,64"
    ended = [cuirc("adapt", "reference.py", "--shape", shape, "-o", folder) for folder in ("first", "second")]
    assert [e.code for e in ended] == [0, 0], ended[0].err
    assert ended[0].out == ended[1].out
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / f).iterdir()} for f in ("first", "second"))
    assert first.keys() == second.keys() == FILES
    assert {name for name in FILES if first[name] != second[name]} <= {"timings.json"}
    _check_again(tmp_path / "first")


def _check_again(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["accepted"] and len(report["mutants"]) >= 4
    again = cuirc("check", folder, "--json")
    assert again.code == 0
    assert json.loads(again.out)["cases"] == report["cases"]
    text = folder / "kernel.cu"
    text.write_text(
        text.read_text(encoding="utf-8").replace("j <= i", "j < i").replace("<= last", "< last"), encoding="utf-8"
    )
    fails(["check", folder], "CU843", 1)
