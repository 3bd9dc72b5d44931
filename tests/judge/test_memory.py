"""What judges said before: told by the content of question and code, and never believed when damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.judge import long_lengths
from cubridge.judge.memory import PACKAGE, Memory
from cubridge.judge.proof.memory import PROOFS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUBRIDGE_CACHE", str(tmp_path))
    return tmp_path / "answers"


def judge(tmp_path: Path, text: str) -> Memory:
    (tmp_path / "judge.py").write_text(text)
    return Memory("answers", ["judge.py"], "torch", tmp_path)


def test_an_answer_is_known_until_question_or_code_change(tmp_path: Path, folder: Path) -> None:
    asked: list[str] = []

    def ask(memory: Memory, question: str) -> list[str]:
        return memory.remembered((question,), lambda: [asked.append(question) or f"{question}!"])

    first = judge(tmp_path, "a judge")
    assert [ask(first, q) for q in ("x", "x", "y")] == [["x!"], ["x!"], ["y!"]]
    assert asked == ["x", "y"] and len([*folder.iterdir()]) == 2
    ask(judge(tmp_path, "another judge"), "x")
    assert asked == ["x", "y", "x"]


@pytest.mark.parametrize("damage", ["", "[]", '{"answer": ["no"], "check": "of another"}', '{"answer": ["no"]}'])
def test_a_damaged_answer_is_asked_again(tmp_path: Path, folder: Path, damage: str) -> None:
    memory = judge(tmp_path, "a judge")
    memory.remembered(("x",), lambda: ["yes"])
    (file,) = folder.iterdir()
    file.write_text(damage)
    assert memory.remembered(("x",), lambda: ["yes, again"]) == ["yes, again"]


def test_an_error_is_no_answer(tmp_path: Path, folder: Path) -> None:
    def refuse() -> list[str]:
        raise CuError(Diagnostic("CU317", "it differs"))

    memory = judge(tmp_path, "a judge")
    for _ in range(2):
        with pytest.raises(CuError):
            memory.remembered(("x",), refuse)
    assert not folder.exists()


@pytest.mark.parametrize("memory", [PROOFS, long_lengths._RIGHT])  # pyright: ignore[reportPrivateUsage]
def test_no_code_is_forgotten(memory: Memory) -> None:
    """A pattern that meets no file would keep answers of other code."""
    assert all(any(PACKAGE.glob(pattern)) for pattern in memory._code)  # pyright: ignore[reportPrivateUsage]
