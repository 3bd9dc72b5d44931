"""Replies of readers who had the prompt alone: five variants that the prompts do not show, each answered once. Their
transcripts are beside this file, as `cuirc` wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.driver.model.talk import answer

TRANSCRIPTS = sorted((Path(__file__).parent / "readers").glob("*.jsonl"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_a_first_reply_is_right(path: Path) -> None:
    reply, verdict = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert verdict["accepted"] is True
    answer(path.stem, reply["reply"], kernel="sm90a")


def test_there_are_five() -> None:
    assert len(TRANSCRIPTS) == 5
