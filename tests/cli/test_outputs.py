"""What commands write: only on success, whole, and the same bytes for the same input."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.ir.spec import Shape
from cubridge.judge.findings import Findings, Verdict
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
    "adapted_reference.py",
    "kernel.cu", "kernel.patch", "source.cuir", "target.cuir", "pipeline.toml", "report.json", "report.md", "timings.json",
    "view.json",
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


def test_a_link_is_replaced_and_never_followed(kernel: Path, tmp_path: Path) -> None:
    precious, output = tmp_path / "precious.txt", tmp_path / "out.cuir"
    precious.write_text("as before", encoding="utf-8")
    output.symlink_to(precious)
    assert cuirc("opt", kernel, "-p", "dce", "-o", output).code == 0
    assert precious.read_text(encoding="utf-8") == "as before"
    assert not output.is_symlink()
    assert output.read_bytes() == cuirc("opt", kernel, "-p", "dce").out


def test_a_fifo_is_written_into(kernel: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        assert cuirc("opt", kernel, "-p", "dce", "-o", fifo).code == 0
        assert reader.communicate()[0] == cuirc("opt", kernel, "-p", "dce").out
    assert fifo.is_fifo()


def test_a_device_stays_one(kernel: Path) -> None:
    before = os.stat("/dev/null")
    assert cuirc("opt", kernel, "-p", "dce", "-o", "/dev/null").code == 0
    assert os.path.samestat(before, os.stat("/dev/null"))


def test_stdout_by_its_name_is_appended_to(kernel: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.cuir"
    with output.open("wb") as stream:
        stream.write(b"before\n")
        stream.flush()
        assert in_shell(f"opt {kernel} -p dce -o /dev/stdout", stdout=stream).returncode == 0
    assert output.read_bytes() == b"before\n" + cuirc("opt", kernel, "-p", "dce").out
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.parametrize(
    ("redirected", "says"),
    [
        ("--version >&-", "<stdout>: Bad file descriptor"),
        ("opt {kernel} -p dce >&-", "<stdout>: Bad file descriptor"),
        ("opt {kernel} -p dce <&- >&-", "<stdout>: Bad file descriptor"),
        ("opt {kernel} -p dce >/dev/full", "<stdout>: No space left on device"),
        ("opt - -p dce <&-", "<stdin>: Bad file descriptor"),
    ],
)
def test_a_stream_that_is_closed_or_full(redirected: str, says: str, kernel: Path) -> None:
    command = redirected.format(kernel=kernel)
    ended = in_shell(command)
    assert (ended.returncode, ended.stdout) == (1, b"")
    first, second = ended.stderr.decode().splitlines()
    assert first == f"error[CU110]: {says}"
    assert second.startswith("repeat: cuirc ")


def test_without_stdout_a_file_is_written_all_the_same(kernel: Path, tmp_path: Path) -> None:
    assert in_shell(f"opt {kernel} -p dce -o {tmp_path / 'out.cuir'} >&- 2>&-").returncode == 0
    assert (tmp_path / "out.cuir").read_bytes() == cuirc("opt", kernel, "-p", "dce").out


def test_without_stderr_nothing_of_it_reaches_stdout(kernel: Path) -> None:
    ended = in_shell(f"opt {kernel} -p no-pass 2>&-")
    assert (ended.returncode, ended.stdout) == (1, b"")


def in_shell(command: str, stdout: IO[bytes] | int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    """`cuirc` in a process of its own, with buffered streams."""
    line = (
        f"exec {shlex.quote(sys.executable)} -c 'import sys; from cubridge.cli import main; sys.exit(main())' {command}"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(["sh", "-c", line], stdout=stdout, stderr=subprocess.PIPE, env=environment, check=False)


@pytest.mark.parametrize("name", ["report.json", "kernel.cu", "transcript.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_no_file_can_replace_is_refused_at_once(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    """The reference is not even read."""
    make(tmp_path / name)
    ended = fails(["adapt", tmp_path / "none.py", "-o", tmp_path], "CU112", 1)
    assert f"{tmp_path / name} is there and is no file" in ended.err
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_transcript_does_not_go_where_a_link_points(tmp_path: Path) -> None:
    (tmp_path / "transcript.jsonl").symlink_to(tmp_path / "precious.txt")
    fails(["adapt", tmp_path / "none.py", "-o", tmp_path], "CU112", 1)


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
    _show(tmp_path / "first")


def _show(folder: Path) -> None:
    """The page is made of data alone: what lies in the folder is not run."""
    (folder / "adapted_reference.py").write_text("raise SystemExit('run')", encoding="utf-8")
    ended = cuirc("show", folder)
    assert (ended.code, ended.err) == (0, f"{folder / 'report.html'}\n")
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert all(said in text for said in ("tril()", "wrong on purpose", "critical path"))
    assert cuirc("show", folder, "-o", folder / "other.html").code == 0
    assert (folder / "other.html").read_text(encoding="utf-8") == text


def test_of_a_rejected_kernel_the_report_alone_is_written(tmp_path: Path) -> None:
    """A report that no wrong kernel was tried for accepts nothing; what an earlier run left would belong to another report."""
    reference, folder, precious = tmp_path / "reference.py", tmp_path / "out", tmp_path / "precious.txt"
    reference.write_text(REFERENCE, encoding="utf-8")
    folder.mkdir()
    precious.write_text("as before", encoding="utf-8")
    (folder / "kernel.cu").symlink_to(precious)
    (folder / "report.md").symlink_to(precious)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    adapted = adapt_unchecked(reference, shape=Shape(1, 2, 1, 130, 70, 64))
    report = adapted.report(Findings((), (), (), Verdict.INTERPRETED, ()))
    Adaptation(adapted, report, {}).write(folder)
    assert {p.name for p in folder.iterdir()} == {"report.json", "report.md", "timings.json", "view.json", "notes.txt"}
    (folder / "view.json").unlink()
    fails(["show", folder], "CU842", 1)
    assert "REJECTED" in (folder / "report.md").read_text(encoding="utf-8")
    assert precious.read_text(encoding="utf-8") == "as before"
    assert "rejects the kernel" in fails(["check", folder], "CU842", 1).err


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
