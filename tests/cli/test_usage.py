"""Command lines that are not understood end with 2; what is asked about the tool itself, with 0."""

from __future__ import annotations

import pytest

from cubridge import __version__
from cubridge.ir.spec import DEFAULT_SHAPE
from tests.support.command import cuirc


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["nonsense"],
        ["explain"],
        ["explain", "a.py", "--nonsense"],
        ["explain", "a.py", "--shape", "1,2,3"],
        ["explain", "a.py", "--shape", "1,2,1,x,5,64"],
        ["explain", "a.py", "--shape", "1,3,2,5,5,64"],
        ["adapt", "a.py", "--shape", "1,2,1,5,0,64", "-o", "b"],
        ["adapt", "a.py"],
        ["adapt", "a.py", "--dtype", "fp32", "-o", "out"],
        ["adapt", "a.py", "-o", ""],
        ["adapt", "a.py", "-o", "out", "--record", ""],
        ["evaluate", "a.toml", "-o", ""],
        ["check", ""],
        ["lift", "sm80", "--head-dim", "wide"],
        ["opt", "a.cuir", "-p", "dce", "-o", ""],
        ["opt", "a.cuir", "-p", "dce", "--pipeline-file", "a.toml"],
        ["lower", "a.cu", "a.cuir", "--emit", "ptx"],
        ["verify", "a.cuir", "--diagnostics", "xml"],
    ],
    ids=" ".join,
)
def test_usage(given: list[str]) -> None:
    ended = cuirc(*given)
    assert (ended.code, ended.out, ended.codes) == (2, b"", ["CU111"])
    assert ended.err.splitlines()[-1].startswith("help: cuirc")


@pytest.mark.parametrize("given", [["--help"], ["adapt", "--help"], ["--version"]], ids=" ".join)
def test_questions(given: list[str]) -> None:
    ended = cuirc(*given)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out


def test_the_version() -> None:
    assert cuirc("--version").out.decode() == f"cuirc {__version__}\n"


OF_THE_CUIR = "that of the CuIR beside it, else"
DEFAULTS = {
    "adapt": ("bf16", str(DEFAULT_SHAPE)),
    **dict.fromkeys(("lift", "faults", "opt"), ("bf16", "128; adapt takes D of --shape")),
    **dict.fromkeys(("lower", "diff"), (f"{OF_THE_CUIR} bf16", f"{OF_THE_CUIR} 128")),
}


@pytest.mark.parametrize("command", DEFAULTS)
def test_help_states_the_defaults(command: str) -> None:
    said = " ".join(cuirc(command, "--help").out.decode().split())
    for default in DEFAULTS[command]:
        assert f"(default: {default}" in said
