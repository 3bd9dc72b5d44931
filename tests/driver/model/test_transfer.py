"""Transfer by a model: what it is told, what it answers, and what goes back to it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from cubridge.driver.model.judge import ValueJudge
from cubridge.driver.model.prompts import pass_catalogue, transfer_system
from cubridge.driver.model.transfer import transfer_by_model
from cubridge.driver.reference import read_reference
from cubridge.ir.diagnostics import CuError
from cubridge.ir.printer import to_text
from cubridge.passes.registry import PASSES
from tests.driver.model.talk import (
    BOX,
    CASE,
    EXAMPLES,
    Scripted,
    answer,
    by_rules,
    conversation,
    cuir_reply,
    lifted,
    pipeline_reply,
)
from tests.support.readings import reading


def test_two_wrong_answers_and_a_right_one() -> None:
    cut = pipeline_reply("prefix_lm").replace('keep="', "keep=")
    causal = '```pipeline\nrewrite-mask{keep="j <= i"}, infer-kv-range\n```'
    target, talk = answer("prefix_lm", cut, causal, pipeline_reply("prefix_lm"))
    assert to_text(target.kernel) == to_text(by_rules("prefix_lm").kernel)
    assert target.proposer == "scripted"
    verdicts = [e for e in talk.transcript.events if e["event"] == "verdict"]
    assert [v["accepted"] for v in verdicts] == [False, False, True]
    assert "CU503" in str(verdicts[0]["diagnostics"])
    assert re.search(r"mask: key \d+ is hidden, and should be visible", str(verdicts[1]["diagnostics"]))


def test_a_target_written_out() -> None:
    target, _ = answer("softcap", cuir_reply("softcap"))
    assert to_text(target.kernel) == to_text(by_rules("softcap").kernel)
    assert target.pipeline.passes == ()


def test_the_last_faults_are_told_when_the_budget_ends() -> None:
    with pytest.raises(CuError) as caught:
        answer("prefix_lm", "no block", "```pipeline\nmagic\n```")
    assert [d.code for d in caught.value.diagnostics] == ["CU708", "CU501"]
    assert caught.value.exit_code == 6


def test_refused_answers_go_back_with_their_diagnostics() -> None:
    talk = conversation("```pipeline\nfirst-one\n```", "```pipeline\nsecond-one\n```", pipeline_reply("prefix_lm"))
    _, talk = answer("prefix_lm", *talk.provider.replies)  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(talk.provider, Scripted)
    first, second, third = (r.prompt for r in talk.provider.asked)
    assert "refused" not in first
    assert "no pass is called `first-one`" in second
    assert "no pass is called `first-one`" in third
    assert "no pass is called `second-one`" in third
    assert "```pipeline\nfirst-one" not in third  # only the last answer is repeated whole
    assert third.count("second-one") >= 2
    assert len({r.stable for r in talk.provider.asked}) == 1


def test_a_reply_that_was_cut_off() -> None:
    with pytest.raises(CuError) as caught:
        answer("prefix_lm", pipeline_reply("prefix_lm"), finished=False)
    assert caught.value.diagnostics[1].code == "CU713"


def test_the_prompt_holds_what_an_answer_needs() -> None:
    _, talk = answer("alibi", pipeline_reply("alibi"))
    assert isinstance(talk.provider, Scripted)
    [asked] = talk.provider.asked
    kernel_lines = to_text(lifted().kernel).splitlines()
    assert all(line in asked.prompt for line in kernel_lines)
    assert reading("alibi").attention.name in asked.prompt
    assert "slopes[h]" in asked.prompt
    assert "capture    slopes[Hq]  argument, f32" in asked.prompt
    for word in ("bind-captured", "def mask(s, kv_start, tile):", "`where(c, a, b)`"):
        assert word in asked.stable


def test_every_pass_is_in_the_catalogue_with_its_options() -> None:
    catalogue = pass_catalogue()
    for name, cls in PASSES.items():
        assert f"## {name}\n" in catalogue
        for option in (f.name for f in fields(cls)):
            assert f"- option `{option}`" in catalogue


def test_the_stable_part_is_the_same_for_every_task() -> None:
    assert transfer_system() == transfer_system()
    assert "{{" not in transfer_system()


def test_agreement_that_would_show_nothing(tmp_path: Path) -> None:
    """No row of this reference sees a key, so that every kernel agrees with it."""
    text = (EXAMPLES / "causal_top_left.py").read_text().replace("j <= i", "j < i - 10000")
    path = tmp_path / "nothing.py"
    path.write_text(text)
    blind = read_reference(path)
    talk = conversation('```pipeline\nrewrite-mask{keep="j < i - 10000"}\n```')
    with pytest.raises(CuError) as caught:
        transfer_by_model(lifted().kernel, blind, talk, BOX, ValueJudge(BOX, blind.attention, "bf16", (CASE,)))
    assert caught.value.diagnostics[1].code == "CU714"
