"""`cuirc opt`: what it shows of a run, its pages, passes from a file, and a failed run as a text that runs again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.adaptation import Adaptation
from cubridge.judge.findings import Findings, MutantResult, Verdict
from tests.support.command import cuirc, fails
from tests.support.golden_texts import golden_file

EXAMPLES = Path(__file__).parents[2] / "examples"
CAUSAL = 'rewrite-mask{keep="j <= i"},infer-kv-range,dce'
OWN = '''\
from dataclasses import dataclass, replace
from typing import ClassVar

from cubridge import Pass, register_pass


@register_pass
@dataclass(frozen=True)
class Rename(Pass):
    """Rename the kernel."""

    name: ClassVar[str] = "rename"
    to: str

    def run(self, kernel, ctx):
        return replace(kernel, name=self.to, constants=() if self.to == "bare" else kernel.constants)
'''


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cuir"
    path.write_bytes(golden_file("sm80").data)
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (["--print-ir-before=dce"], ["# before dce"]),
        (["--print-ir-after=dce,rewrite-mask"], ["# after rewrite-mask", "# after dce"]),
        (["--print-ir-before-all"], ["# before rewrite-mask", "# before infer-kv-range", "# before dce"]),
        (["--print-ir-after-change"], ["# after rewrite-mask", "# after infer-kv-range"]),
        (["--print-ir-diff"], ["# rewrite-mask", "# infer-kv-range", "# dce: no change"]),
    ],
    ids=lambda x: x[0] if isinstance(x[0], str) else "",
)
def test_what_is_shown_of_a_run(kernel: Path, flags: list[str], shown: list[str]) -> None:
    run = cuirc("opt", kernel, "-p", CAUSAL, *flags)
    assert [line for line in run.err.splitlines() if line.startswith("#")] == shown
    assert run.out == cuirc("opt", kernel, "-p", CAUSAL).out


def test_differences_are_what_the_pass_changed(kernel: Path) -> None:
    shown = cuirc("opt", kernel, "-p", CAUSAL, "--print-ir-diff").err
    assert "- s = where(j < Lk, s, -inf)\n+ s = where((j < Lk) & (j <= i), s, -inf)\n" in shown


def test_times_are_of_each_pass_and_of_verification(kernel: Path) -> None:
    *rows, total = cuirc("opt", kernel, "-p", CAUSAL, "--timing").err.splitlines()[1:]
    assert [row.split()[-1] for row in rows] == ["rewrite-mask", "infer-kv-range", "dce", "verification"]
    assert sum(float(row.split()[0]) for row in rows) == pytest.approx(float(total.split()[0]), abs=0.05)


def test_a_failed_run_is_a_text_that_fails_alike(kernel: Path, own: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.cuir"
    pipeline = 'rewrite-mask{keep="j <= i"},rename{to="bare"},dce'
    error = fails(["opt", kernel, "--load", own, "-p", pipeline, "--reproducer", again], "CU207", 1)
    assert again.read_text(encoding="utf-8").startswith('# pipeline: rename{to="bare"},dce\ncuir(')
    assert fails(["opt", "--load", own, again], "CU207", 1).codes == error.codes
    assert b"j <= i" in cuirc("opt", again, "-p", "dce").out


def test_no_reproducer_of_a_run_that_succeeds(kernel: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.cuir"
    assert cuirc("opt", kernel, "-p", CAUSAL, "--reproducer", again).code == 0
    assert not again.exists()


def test_a_pipeline_in_the_first_line_is_read_at_its_place(kernel: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.cuir"
    text.write_bytes(b"# pipeline: dce,simplfy\n" + kernel.read_bytes())
    assert "text.cuir:1:17: error[CU501]" in fails(["opt", text], "CU501", 1).err


def test_passes_are_listed_and_explained(own: Path) -> None:
    assert b"rewrite-mask        Replace the mask" in cuirc("opt", "--list-passes").out
    assert b"rename" in cuirc("opt", "--load", own, "--list-passes").out
    assert b"`keep`: an expression, needed" in cuirc("opt", "--help-pass", "rewrite-mask").out
    fails(["opt", "--help-pass", "rewrite-maks"], "CU501", 1)


def test_what_is_missing_is_named(kernel: Path) -> None:
    fails(["opt"], "CU111", 2)
    fails(["opt", kernel], "CU111", 2)


def test_a_file_of_passes_that_fails(kernel: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import dataclasses\n\nraise ValueError('no')\n", encoding="utf-8")
    assert "bad.py:3:1: error[CU471]" in fails(["opt", kernel, "--load", bad, "-p", "dce"], "CU471", 1).err
    bad.write_text("from cubridge import register_pass\n\n@register_pass\nclass Bare: ...\n", encoding="utf-8")
    assert "bad.py:3:2: error[CU516]" in fails(["opt", kernel, "--load", bad, "-p", "dce"], "CU516", 1).err


def test_a_folder_whose_pipeline_names_a_pass_of_a_file(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = Findings((), (MutantResult("mask dropped", "value engine"),), (), Verdict.COMPILED, ())
    monkeypatch.setattr("cubridge.driver.folder.check_adapted", lambda *_: findings)
    monkeypatch.setattr("cubridge.passes.own._registered", {})
    adapted = adapt_unchecked(EXAMPLES / "full.py", "sm80")
    (tmp_path / "out").mkdir()
    Adaptation(adapted, adapted.report(findings), {}).write(tmp_path / "out")
    (tmp_path / "out" / "pipeline.toml").write_text('[[pass]]\nname = "rename"\nto = "mine"\n', encoding="utf-8")
    assert "--load FILE.py" in fails(["check", tmp_path / "out"], "CU501", 1).err
    assert cuirc("check", tmp_path / "out", "--load", own).code == 0
    fails(["bench", tmp_path / "out", "--load", tmp_path / "nothing.py"], "CU470", 1)
