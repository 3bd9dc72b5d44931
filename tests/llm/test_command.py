"""Any program may be a model; whatever it does, it ends in a reply or in one clear failure."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.llm.provider import Reply, Request
from cubridge.llm.providers.command import CommandProvider

REQUEST = Request("transfer", "the stable part", "the question")


def run(code: str, timeout: float = 20.0) -> Reply:
    command = shlex.join([sys.executable, "-S", "-E", "-c", code])
    return CommandProvider(command, timeout).complete(REQUEST)


def code_of(code: str, timeout: float = 20.0) -> str:
    with pytest.raises(CuError) as caught:
        run(code, timeout)
    return caught.value.diagnostics[0].code


def test_prompt_in_reply_out() -> None:
    reply = run("import sys; print(sys.stdin.read().upper())")
    assert reply.text == "THE STABLE PART\n\nTHE QUESTION\n"


def test_no_shell_reads_the_command() -> None:
    assert CommandProvider("echo $HOME; true").complete(REQUEST).text == "$HOME; true\n"


def test_a_program_that_reads_nothing() -> None:
    assert run("print('hello')").text == "hello\n"


def test_bytes_that_are_no_text() -> None:
    assert run("import os; os.write(1, b'a\\xffb')").text == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("", "CU703"),
        ("print('  ')", "CU703"),
        ("print('x' * 10_000_000)", "CU703"),
        ("print('half'); raise SystemExit(3)", "CU701"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "CU701"),
    ],
)
def test_failures(code: str, fault: str) -> None:
    assert code_of(code) == fault


@pytest.mark.parametrize("command", ["/no/such/program", "'unbalanced", " "])
def test_programs_that_do_not_start(command: str) -> None:
    with pytest.raises(CuError, match="cannot be started"):
        CommandProvider(command).complete(REQUEST)


def test_a_program_that_never_stops_writing() -> None:
    start = time.monotonic()
    assert code_of("while True: print('x' * 100000)", 30.0) == "CU703"
    assert time.monotonic() - start < 15


def test_out_of_time_ends_all_that_was_started(tmp_path: Path) -> None:
    """A child of the program, which would write a file a little later, is killed with it."""
    late = tmp_path / "late"
    child = f"import time; time.sleep(1.2); open({str(late)!r}, 'w')"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-S', '-c', {child!r}]); time.sleep(60)"
    assert code_of(code, 0.4) == "CU702"
    time.sleep(1.5)
    assert not late.exists()
