"""Every query tile once, for all sizes; schedules that are right at the sizes of the checks are not proved."""

from __future__ import annotations

import pytest

from cubridge.judge.proof.prove import prove_part
from cubridge.judge.proof.schedule import why_not_once
from tests.judge.proof.targets import changed, source, spec

WRONG = {
    "a key head of another mapping": ("tile.h // (Hq // Hk)", "tile.h % Hk", "key heads"),
    "tiles from another end, one short": (
        "p.q_blocks - 1 - rest // heads",
        "p.q_blocks - 2 - rest // heads",
        "outside",
    ),
    "a head that is met twice": ("head % Hq", "minimum(head % Hq, 129)", "twice"),
    "a divisor that may be 0": ("// heads)", "// (heads - 1))", "divide by 0"),
    "groups without end": ("minimum(p.group_heads, B * Hq - first)", "p.group_heads", "outside"),
    "a group of no heads": ("maximum(1, 2 ** 25", "maximum(0, 2 ** 25", "may be 0"),
}


def test_the_packaged_schedule_is_proved() -> None:
    assert source("sm90a").schedule == source("sm80").schedule
    assert why_not_once(source("sm90a")) == ""


@pytest.mark.parametrize("name", WRONG)
def test_wrong_schedules_are_not(name: str) -> None:
    old, new, said = WRONG[name]
    assert said in prove_part(changed("full", (old, new)), spec("full"), "schedule").because


def test_work_that_is_counted_wrong() -> None:
    wrong = changed(
        "full", ("work_count=Scalar(i32, host=B * Hq", "work_count=Scalar(i32, host=B * Hk"), kernel="sm90a"
    )
    assert "number of query tiles" in prove_part(wrong, spec("full"), "schedule").because
