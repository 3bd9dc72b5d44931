"""CUDA texts through the command line: what is refused, and what must work however it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cubridge.driver.kernels import FOLDER
from tests.support.command import as_json, cuirc, fails

TEXT = (FOLDER / "sm80" / "attention_forward.cu").read_text(encoding="utf-8")
FAILED, UNSUPPORTED = 1, 4


@dataclass(frozen=True, slots=True)
class Wrong:
    """`old` -> `new` in the text of the sm80 kernel, or `new` as the whole file; `at`: what the message points at."""

    name: str
    old: str
    new: str
    code: str
    at: str
    says: str

    @property
    def text(self) -> str:
        assert self.old in TEXT
        return TEXT.replace(self.old, self.new, 1) if self.old else self.new


WRONG = (
    Wrong("empty", "", "", "CU420", "", "empty"),
    Wrong("blank", "", "\n\n", "CU420", "", "empty"),
    Wrong("no_cuda", "", "hello, this is no kernel\n", "CU841", "hello", "no launch contract"),
    Wrong("unclosed_region", "// @endregion score\n", "", "CU422", "// @region score", "`score` is not closed"),
    Wrong(
        "unknown_region", "// @region mask\n", "// @region masque\n", "CU422", "// @region masque", "no region `masque`"
    ),
    Wrong("unknown_statement", "cp_async_commit();", "__nanosleep(7);", "CU423", "__nanosleep(7)", "__nanosleep"),
)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w.name)
@pytest.mark.parametrize("command", ["lift", "verify"])
def test_refused(command: str, wrong: Wrong, tmp_path: Path) -> None:
    path = tmp_path / f"{wrong.name}.cu"
    path.write_text(wrong.text, encoding="utf-8")
    ended = fails([command, path], wrong.code, FAILED)
    file, line, code = ended.places[0]
    assert (file, code) == (str(path), wrong.code)
    assert wrong.says in ended.err.splitlines()[0]
    lines = wrong.text.split("\n")
    assert wrong.at in lines[line - 1]
    assert as_json([command, path])["diagnostics"][0]["line"] == line


@pytest.mark.parametrize("command", ["lift", "verify"])
def test_code_of_the_host_never_runs(command: str, tmp_path: Path) -> None:
    path, ran = tmp_path / "host.cu", tmp_path / "ran"
    code = f'#include <cstdlib>\nstatic int ran = system("touch {ran}");\n// @region mask\n'
    path.write_text(TEXT.replace("// @region mask\n", code), encoding="utf-8")
    fails([command, path], "CU421", FAILED)
    assert not ran.exists()


def test_nothing_of_a_text_runs_on_the_host(tmp_path: Path) -> None:
    """The form that is lifted may be without fault, and another one is emulated."""
    path, ran = tmp_path / "host.cu", tmp_path / "ran"
    code = f'#if HEAD_DIM == 64\nstatic int ran = system("touch {ran}");\n#endif\n// @region mask\n'
    path.write_text(TEXT.replace("// @region mask\n", code), encoding="utf-8")
    assert cuirc("lift", path, "--head-dim", "128").code == 0
    fails(["verify", path, "--head-dim", "128"], "CU831", FAILED)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("condition", "form"),
    [("#if BLOCK_KV == 32", "BLOCK_KV=32"), ("#if HEAD_DIM == 128", "head dim 128"), ("#ifdef HALF_FP16", "fp16")],
)
def test_every_form_of_the_contract_is_verified(condition: str, form: str, tmp_path: Path) -> None:
    """A text that is wrong in one form alone, not in the first."""
    path, right = tmp_path / "kernel.cu", "            o[r][c] = o[r][c] * inv;\n"
    wrong = f"{condition}\n{right.replace('inv', 'inv * 1.1f')}#else\n{right}#endif\n"
    assert right in TEXT
    path.write_text(TEXT.replace(right, wrong), encoding="utf-8")
    ended = fails(["verify", path], "CU844", 3)
    assert form in ended.err.partition("in the form ")[2].partition("\n")[0]


def test_a_text_that_ends_before_its_kernel(tmp_path: Path) -> None:
    path = tmp_path / "cut.cu"
    path.write_text(TEXT[: TEXT.index("KERNEL(")], encoding="utf-8")
    ended = fails(["lift", path], "CU455", FAILED)
    assert f"{path} has no kernel `attention_forward`" in ended.err


def test_every_unknown_statement_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "several.cu"
    path.write_text(TEXT.replace("cp_async_commit();", "__nanosleep(7);"), encoding="utf-8")
    ended = fails(["lift", path], "CU423", FAILED)
    assert len({line for _, line, _ in ended.places}) >= TEXT.count("cp_async_commit();")


@pytest.mark.parametrize(
    "data",
    [
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("// group:", "// Grüße, 最初:").encode(),
        TEXT.replace("// group:", "// Grüße, 最初:").replace("\n", "\r\n").encode(),
        TEXT.replace("// group:", "// \xff\xfe:").encode("latin-1", errors="replace"),
    ],
    ids=["crlf", "non-ascii", "both", "not-utf-8"],
)
def test_how_a_text_is_stored_changes_nothing(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_bytes(data)
    assert data != TEXT.encode()
    assert cuirc("lift", path).out == cuirc("lift", "sm80").out


def test_a_text_with_crlf_is_patched_with_crlf(tmp_path: Path) -> None:
    source, target = tmp_path / "kernel.cu", tmp_path / "target.cuir"
    source.write_bytes(TEXT.replace("\n", "\r\n").replace("// group:", "// Grüße:").encode())
    ended = cuirc("lift", source, "-o", target)
    assert (ended.code, ended.out, ended.err) == (0, b"", "")
    changed = target.read_text(encoding="utf-8").replace("row.m = -inf", "row.m = -1000000.0", 1)
    target.write_text(changed, encoding="utf-8")
    patched = cuirc("lower", source, target, "--emit", "cu").out
    assert patched.count(b"\n") == patched.count(b"\r\n")
    assert "// Grüße:".encode() in patched
    assert patched != source.read_bytes()


def test_an_untouched_kernel_lowers_to_an_empty_patch(tmp_path: Path) -> None:
    target = tmp_path / "source.cuir"
    assert cuirc("lift", "sm80", "-o", target).code == 0
    assert cuirc("lower", "sm80", target).out == b""


@pytest.mark.parametrize(
    ("given", "code", "exit_code"),
    [
        (["lift", "none.cu"], "CU110", FAILED),
        (["lift", "sm70"], "CU840", FAILED),
        (["lift", "sm80", "--head-dim", "96"], "CU809", UNSUPPORTED),
        (["faults", "none.cu"], "CU110", FAILED),
        (["verify", "."], "CU110", FAILED),
    ],
    ids=lambda x: x[1] if isinstance(x, list) else None,
)
def test_a_kernel_that_there_is_not(given: list[str], code: str, exit_code: int) -> None:
    fails(given, code, exit_code)
