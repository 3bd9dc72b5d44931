"""docs/kernels.md by a newcomer: its files written, its commands run in order, in one process."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cubridge.cli import main
from cubridge.cli.arguments import make_parser
from cubridge.frontend.cuda import register
from cubridge.frontend.cuda.lemmas import KINDS, TYPES
from cubridge.ir.codes import CODES
from cubridge.ir.nodes import REGIONS

PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)(?: (\S+))?\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every file of the page is written, and every command has been run."""
    folder, before = tmp_path_factory.mktemp("kernels"), Path.cwd()
    for _, name, text in BLOCKS:
        if name:
            (folder / name).write_text(text, encoding="utf-8")
    os.chdir(folder)
    try:
        for kind, _, text in BLOCKS:
            if kind == "sh":
                _run(text)
    finally:
        os.chdir(before)
    return folder


def _run(script: str) -> None:
    """A block of commands: ours in this process, others in a shell."""
    commands = [shlex.split(line) for line in script.splitlines()]
    if commands[0][0] == "from=$(python":
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        subprocess.run(["sh", "-ec", script], check=True, env={**os.environ, "PATH": path})
        return
    for command in commands:
        match command:
            case ["cuirc", *arguments]:
                assert main(arguments) == 0, command
            case ["python", "-m", register.__name__, *arguments]:
                assert register.main(arguments) == 0, command
            case _:
                raise AssertionError(f"who runs `{shlex.join(command)}`?")


def test_the_steps_give_what_the_page_says(folder: Path) -> None:
    ring = (folder / "ring.cuir").read_text()
    assert "slot = (slot + 1) % STAGES" in ring and "STAGES=3" in ring
    assert "row_top(s[r])" in (folder / "ring.cu").read_text() and "row_top" not in ring
    report = json.loads((folder / "prefix" / "report.json").read_text())
    assert (report["verdict"], report["kernel"]) == ("compiled", "ring.cu")


def test_the_other_element_type(folder: Path) -> None:
    assert main(["verify", str(folder / "ring.cu"), "--dtype", "fp16", "--head-dim", "64"]) == 0


def test_a_variant_that_changes_most_regions(folder: Path, tmp_path: Path) -> None:
    reference = EXAMPLES / "alibi_softcap_documents.py"
    variant = [str(reference), "--kernel", str(folder / "ring.cu"), "--shape", "1,4,2,200,200,64"]
    assert main(["adapt", *variant, "-o", str(tmp_path)]) == 0
    changed = json.loads((tmp_path / "report.json").read_text())["changed"]["regions"]
    assert {"params", "tile_state", "tile_setup", "kv_range", "score", "mask"} <= set(changed)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("if (t < count) {", "if (thread_index() == 1) {", "CU427"),
        ("cp_async_wait<STAGES - 2>();", "cp_async_wait<STAGES - 1>();", "CU25"),
        ("fmaxf(y, row[c + 1])", "fmaxf(x, row[c + 1])", "CU424"),
        ("slot = (slot + 1) % STAGES;", "slot = (slot - 1) % STAGES;", "CU426"),
        ("BLOCK_KV = [64, 32]", "BLOCK_KV = [192]", "CU221"),
    ],
)
def test_what_goes_wrong_is_said(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], old: str, new: str, code: str
) -> None:
    found = 0
    for name in ("ring.cu", "ring.cuh", "ring.toml", "ring.lemmas.toml"):
        text = (folder / name).read_text()
        found += text.count(old)
        (tmp_path / name).write_text(text.replace(old, new))
    assert found == 1
    assert main(["verify", str(tmp_path / "ring.cu")]) != 0
    assert f"error[{code}" in capfd.readouterr().err


def test_the_words_of_the_page() -> None:
    """Every region with its signature, every kind of row, every subcommand that is named, every code."""
    words = set(re.findall(r"\w+", PAGE))
    assert {*REGIONS, *KINDS, *TYPES} <= words
    assert {*re.findall(r"CU\d{3}", PAGE)} <= set(CODES)
    for command in re.findall(r"`?cuirc (\w+)", PAGE):
        with pytest.raises(SystemExit) as caught:
            make_parser().parse_args([command, "--help"])
        assert caught.value.code == 0
