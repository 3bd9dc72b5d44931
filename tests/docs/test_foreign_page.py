"""docs/foreign.md by a reader: its commands run in order beside the kernels that it names."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.driver.foreign.kernels import FOLDER
from tests.support.command import cuirc
from tests.support.variants import EXAMPLES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "foreign.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first writes what the filled contract began as."""
    assert f"`{FOLDER.relative_to(ROOT)}`" in PAGE
    for name in ("pipelined.cu", "pipelined.toml"):
        shutil.copy(FOLDER / name, tmp_path)
    shutil.copy(EXAMPLES / "prefix_lm.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines():
        command, *arguments = shlex.split(line)
        assert command == "cuirc"
        ended = cuirc(*arguments)
        assert ended.code == 0, ended.err
        if arguments[0] == "lift":
            assert "pipelined.cu:" in ended.err and "not covered: a branch here" in ended.err
    first = (tmp_path / "first.toml").read_text().splitlines()
    said = {line for line in first if "???" not in line and "#" not in line}
    assert len(said) > 20 and said <= {*(tmp_path / "pipelined.toml").read_text().splitlines()}
    assert "j < (Lq >> 2)" in (tmp_path / "prefix" / "cubridge_hooks.cuh").read_text()
    assert "(j <= i) | (j < 7)" in (tmp_path / "prefix.cuir").read_text()
