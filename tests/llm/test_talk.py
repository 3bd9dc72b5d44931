"""Budgets, transcripts, prompts, and the choice of a provider."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cubridge.ir.diagnostics import CuError, InternalError
from cubridge.llm.budget import Budget, Conversation
from cubridge.llm.choose import choose_provider
from cubridge.llm.prompt import fill, numbered, slots, template
from cubridge.llm.provider import Reply, Request, Usage
from cubridge.llm.transcript import Transcript, read_transcript, to_page

REQUEST = Request("transfer", "stable", "question")
USAGE = Usage(100, 50, 0, 0.5)


@dataclass(frozen=True, slots=True)
class Fixed:
    text: str = "answer"
    usage: Usage = USAGE
    name: str = "fixed"

    def complete(self, request: Request) -> Reply:
        return Reply(self.text, "fixed-1", self.usage)


def talk(budget: Budget, usage: Usage = USAGE) -> Conversation:
    return Conversation(Fixed(usage=usage), budget, Transcript())


@pytest.mark.parametrize(
    ("budget", "replies", "option"),
    [
        (Budget(rounds=2), 2, "--max-rounds"),
        (Budget(rounds=9, tokens=400), 3, "--max-tokens"),
        (Budget(rounds=9, usd=1.0), 2, "--max-usd"),
    ],
)
def test_budgets_end_a_conversation_before_the_next_request(budget: Budget, replies: int, option: str) -> None:
    conversation = talk(budget)
    for _ in range(replies):
        conversation.ask(REQUEST)
    with pytest.raises(CuError) as caught:
        conversation.ask(REQUEST)
    assert (caught.value.diagnostics[0].code, caught.value.exit_code) == ("CU708", 6)
    assert option in str(caught.value)


def test_a_prompt_beyond_the_budget_is_never_sent() -> None:
    conversation = talk(Budget(tokens=1000))
    with pytest.raises(CuError, match="tokens"):
        conversation.ask(Request("lift", "x" * 9000, "y"))
    assert conversation.transcript.events == []


def test_money_needs_a_price() -> None:
    with pytest.raises(CuError, match="CU709"):
        talk(Budget(usd=1.0), Usage(10, 10)).ask(REQUEST)


def test_a_transcript_as_a_page(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    transcript = Transcript(file)
    hostile = "line\u2028 one\x1b[2J\nline two"
    Conversation(Fixed(hostile), Budget(), transcript).ask(REQUEST)
    transcript.verdict("transfer", False, "error[CU101]: no")
    transcript.tool("compile", "", "done")
    transcript.failure("lower", "out of time")
    transcript.verdict("transfer", True, "")
    events = read_transcript(file)
    assert [e["event"] for e in events] == ["reply", "verdict", "tool", "failure", "verdict"]
    assert events[0]["reply"] == hostile
    page = to_page(events)
    assert "\x1b" not in page
    for part in ("## 1. transfer: fixed answers, 100 + 50 tokens, $0.5000", "    line two", "transfer: refused", "CU101",
                 "tool compile", "lower: failed", "transfer: accepted"):  # fmt: skip
        assert part in page


@pytest.mark.parametrize("line", ["{", "[]", '{"a": 1}', "nonsense", "[" * 100_000])
def test_a_file_that_is_no_transcript(tmp_path: Path, line: str) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(CuError, match="CU707"):
        read_transcript(file)


def test_slots_in_values_stay() -> None:
    name = "transfer"
    values = {slot: "{{reference}} " + slot for slot in slots(name)}
    assert "{{reference}} reference" in fill(name, values)
    assert fill(name, values).count("{{") == template(name).count("{{")


@pytest.mark.parametrize("change", [{"odd": "x"}, {}])
def test_slots_must_match(change: dict[str, str]) -> None:
    with pytest.raises(InternalError):
        fill("transfer", change)


def test_numbered_lines() -> None:
    assert numbered("a\nb\n") == "   1 | a\n   2 | b"


@pytest.mark.parametrize(
    "text", ["anthropic:some-model", "openai:org/some-model", "command:prog --arg", "replay:some/folder"]
)
def test_providers_by_name(text: str) -> None:
    assert choose_provider(text).name == text


@pytest.mark.parametrize("text", ["", "anthropic", "anthropic:", "magic:x", "eval:x", "../x"])
def test_what_is_no_provider(text: str) -> None:
    with pytest.raises(CuError) as caught:
        choose_provider(text)
    assert (caught.value.diagnostics[0].code, caught.value.exit_code) == ("CU706", 2)
