"""Recorded replies come back in order; a run that broke off goes on from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.llm.provider import Reply, Request, Usage
from cubridge.llm.replay import Recorder, ReplayProvider, reply_file


@dataclass(slots=True)
class Counting:
    """Answers with its own count; fails once it has given `most` replies."""

    most: int = 99
    given: int = 0
    name: str = "counting"

    def complete(self, request: Request) -> Reply:
        if self.given == self.most:
            raise KeyboardInterrupt
        self.given += 1
        return Reply(f"{request.purpose} {self.given}", "counter-1", Usage(10, 5, 1, 0.25), self.given != 2)


def ask(purpose: str, prompt: str) -> Request:
    return Request(purpose, "stable", prompt)


def test_each_purpose_has_its_own_replies(tmp_path: Path) -> None:
    recorder = Recorder(Counting(), tmp_path)
    made = [recorder.complete(ask(p, "x")) for p in ("lift", "transfer", "lift")]
    replay = ReplayProvider(tmp_path)
    assert [replay.complete(ask(p, "y")) for p in ("lift", "transfer", "lift")] == made
    assert made[1].complete is False


def test_no_reply_left(tmp_path: Path) -> None:
    with pytest.raises(CuError) as caught:
        ReplayProvider(tmp_path).complete(ask("lower", "x"))
    assert caught.value.diagnostics[0].code == "CU705"
    assert "lower.1.md" in str(caught.value)


def test_replies_written_by_hand(tmp_path: Path) -> None:
    reply_file(tmp_path, "transfer", 1).write_text("by hand")
    assert ReplayProvider(tmp_path).complete(ask("transfer", "x")).text == "by hand"


@pytest.mark.parametrize("facts", ["", "[]", "{", '{"usage": 3}', '{"usage": {"odd": 1}}', "[" * 200_000])
def test_facts_that_say_nothing(tmp_path: Path, facts: str) -> None:
    file = reply_file(tmp_path, "transfer", 1)
    file.write_text("text")
    file.with_suffix(".json").write_text(facts)
    assert ReplayProvider(tmp_path).complete(ask("transfer", "x")).usage == Usage()


def test_a_run_that_broke_off_goes_on(tmp_path: Path) -> None:
    first = Recorder(Counting(most=2), tmp_path)
    begun = [first.complete(ask("transfer", "one")), first.complete(ask("transfer", "two"))]
    with pytest.raises(KeyboardInterrupt):
        first.complete(ask("transfer", "three"))
    model = Counting(given=2)
    again = Recorder(model, tmp_path)
    assert [again.complete(ask("transfer", p)) for p in ("one", "two")] == begun
    assert again.complete(ask("transfer", "three")).text == "transfer 3"
    assert model.given == 3


def test_another_prompt_asks_again(tmp_path: Path) -> None:
    Recorder(Counting(), tmp_path).complete(ask("transfer", "one"))
    model = Counting(given=7)
    assert Recorder(model, tmp_path).complete(ask("transfer", "changed")).text == "transfer 8"
    assert reply_file(tmp_path, "transfer", 1).read_text() == "transfer 8"
