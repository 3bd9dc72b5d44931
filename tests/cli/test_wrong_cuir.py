"""CuIR texts and pipelines that are refused; case files hold the many kinds of each fault, here is how they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import as_json, cuirc, fails, stdin_of
from tests.support.golden_texts import golden_file
from tests.support.variants import EXAMPLES

TEXT = golden_file("sm80").text


def _write(folder: Path, text: str | bytes, name: str = "kernel.cuir") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("row.m = -inf", "row.m = True", "CU202"),
        ("row.m = -inf", "row.m = nobody", "CU201"),
        ("row.m = -inf", "row.m = ", "CU101"),
        ("row.m = -inf", "row.m = no_such(1.0)", "CU103"),
        ("version=1", "version=7", "CU102"),
    ],
)
def test_a_fault_of_the_text(old: str, new: str, code: str, tmp_path: Path) -> None:
    path = _write(tmp_path, TEXT.replace(old, new, 1))
    ended = fails(["verify", path], code, 1)
    line = TEXT[: TEXT.index(old)].count("\n") + 1
    assert ended.places[0] == (str(path), line, code)
    assert as_json(["verify", path])["diagnostics"][0]["line"] == line


def test_run_takes_a_kernel_that_verifies(tmp_path: Path) -> None:
    loop = "for t in range(0, count):"
    path = _write(tmp_path, TEXT.replace(loop, "for t in range(0, 1000000000):"))
    ended = fails(["run", path, EXAMPLES / "full.py"], "CU267", 1)
    assert ended.places[0] == (str(path), TEXT[: TEXT.index(loop)].count("\n") + 1, "CU267")


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"", "CU102"), (b"\xff\xfe", "CU101"), (TEXT[:900].encode(), "CU101")],
    ids=["empty", "bytes", "cut"],
)
def test_no_cuir_at_all(data: bytes, code: str, tmp_path: Path) -> None:
    assert fails(["verify", _write(tmp_path, data)], code, 1).places


def test_a_faulty_kernel_is_verified_before_the_first_pass(tmp_path: Path) -> None:
    path = _write(tmp_path, TEXT.replace("row.m = -inf", "row.m = True", 1))
    fails(["opt", path, "-p", "dce"], "CU202", 1)
    assert cuirc("opt", path, "-p", "dce", "--no-verify").code == 0


def test_crlf_reads_as_lf(tmp_path: Path) -> None:
    crlf = _write(tmp_path, TEXT.replace("\n", "\r\n"))
    assert cuirc("diff", crlf, _write(tmp_path, TEXT, "lf.cuir")).code == 0


@pytest.mark.parametrize(
    ("pipeline", "code", "column"),
    [
        ("no-pass", "CU501", 1),
        ('rewrite-mask{nothing="j"}', "CU502", 23),
        ("rewrite-mask", "CU504", 1),
        ('rewrite-mask{keep="j <="}', "CU101", 24),
        ('rewrite-mask{keep="j <= nobody"}', "CU505", 25),
        ('rewrite-mask{keep="i + j"}', "CU507", 20),
        ('rewrite-mask{keep="no_such(1.0) > 0.0"}', "CU103", 20),
        ("dce,,dce", "CU503", 5),
        ('rewrite-score{score="s / 0.0"}', "CU507", 22),
        ('rewrite-mask{keep="j % (2 - 2) == 0"}', "CU507", 20),
    ],
)
def test_a_fault_of_the_pipeline(pipeline: str, code: str, column: int, tmp_path: Path) -> None:
    given = ["opt", _write(tmp_path, TEXT), "-p", pipeline]
    ended = fails(given, code, 1)
    assert ended.places[0] == ("<pipeline>", 1, code)
    assert as_json(given)["diagnostics"][0]["column"] == column


@pytest.mark.parametrize(
    ("toml", "code"),
    [
        ("[[pass]\n", "CU503"),
        ('[[pass]]\nname = "no-pass"\n', "CU501"),
        ('[[pass]]\nname = "dce"\nnothing = "3"\n', "CU502"),
        ('[[pass]]\nname = "rewrite-mask"\nkeep = 3\n', "CU503"),
        ('[[pass]]\nkeep = "j"\n', "CU503"),
        ('[[passes]]\nname = "dce"\n', "CU503"),
        ('[[pass]]\nname = "rewrite-mask"\nkeep = "j <= nobody"\n', "CU505"),
    ],
)
def test_a_fault_of_a_pipeline_file(toml: str, code: str, tmp_path: Path) -> None:
    path = _write(tmp_path, toml, "pipeline.toml")
    ended = fails(["opt", _write(tmp_path, TEXT), "--pipeline-file", path], code, 1)
    assert ended.places[0][0] == str(path)


def test_adapt_takes_a_pipeline_file_too(tmp_path: Path) -> None:
    path = _write(tmp_path, '[[pass]]\nname = "no-such-pass"\n', "pipeline.toml")
    ended = fails(["adapt", EXAMPLES / "full.py", "--pipeline-file", path, "-o", tmp_path / "out"], "CU501", 1)
    assert ended.places[0][0] == str(path)


def test_no_patch_of_a_kernel_that_verify_refuses(tmp_path: Path) -> None:
    target = tmp_path / "target.cuir"
    text = cuirc("lift", "sm80").out.decode()
    for old, new, code in (("row.m = -inf", "row.m = True", "CU202"), ("    row.m = m_new\n", "", "CU208")):
        assert old in text
        target.write_text(text.replace(old, new, 1), encoding="utf-8")
        fails(["verify", target], code, 1)
        fails(["lower", "sm80", target], code, 1)


def test_stdin_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin_of(TEXT.encode()))
    printed = cuirc("opt", "-", "-p", "")
    monkeypatch.setattr("sys.stdin", stdin_of(printed.out))
    assert cuirc("opt", "-", "-p", "").out == printed.out
    monkeypatch.setattr("sys.stdin", stdin_of(b""))
    assert fails(["opt", "-", "-p", ""], "CU102", 1).places[0][0] == "<stdin>"


def test_diff(tmp_path: Path) -> None:
    left = _write(tmp_path, TEXT)
    reflowed = _write(tmp_path, TEXT.replace("STAGES=2", "STAGES = 2"), "reflowed.cuir")
    other = _write(tmp_path, TEXT.replace("row.m = -inf", "row.m = 0.0", 1), "other.cuir")
    same = cuirc("diff", left, reflowed)
    assert (same.code, same.out, same.err) == (0, b"", "")
    changed = cuirc("diff", left, other)
    assert changed.code == 1
    assert changed.out.decode().splitlines()[-2:] == ["- row.m = -inf", "+ row.m = 0.0"]
    fails(["diff", left, tmp_path / "none.cuir"], "CU110", 1)


def test_a_target_whose_orchestration_is_another(tmp_path: Path) -> None:
    target = tmp_path / "target.cuir"
    lifted = cuirc("lift", "sm80").out.decode()
    lines = lifted.split("\n")
    del lines[next(n for n, line in enumerate(lines) if "wait_group" in line)]
    target.write_text("\n".join(lines), encoding="utf-8")
    assert fails(["lower", "sm80", target], "CU270", 1).places
