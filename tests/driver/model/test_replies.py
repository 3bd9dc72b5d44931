"""Wrong answers of every kind are refused, each for its reason; unusual right ones are accepted."""

from __future__ import annotations

from collections import Counter

import pytest

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lower import lower_kernel
from cubridge.ir.diagnostics import CuError
from tests.driver.model.right_replies import RIGHT, SPOILS, Right, Spoil, spoiled
from tests.driver.model.talk import answer, lifted
from tests.driver.model.unusual_replies import UNUSUAL, Unusual


@pytest.mark.parametrize("right", RIGHT, ids=lambda r: f"{r.variant}-{r.form.__name__}")
def test_right_answers(right: Right) -> None:
    answer(right.variant, right.text, kernel=right.kernel)


@pytest.mark.parametrize("spoil", SPOILS, ids=[f"{s.kind}-{n}" for n, s in enumerate(SPOILS)])
def test_wrong_answers(spoil: Spoil) -> None:
    right, text = spoiled(spoil)
    with pytest.raises(CuError) as caught:
        answer(right.variant, text, kernel=right.kernel)
    first, *reasons = caught.value.diagnostics
    assert first.code == "CU708"
    assert {r.code for r in reasons} & {*spoil.codes}, str(caught.value)
    assert spoil.said in str(caught.value)


def test_there_are_enough_wrong_answers_of_each_kind() -> None:
    assert min(Counter(s.kind for s in SPOILS).values()) >= 5


@pytest.mark.parametrize("odd", UNUSUAL, ids=[u.name for u in UNUSUAL])
def test_unusual_right_answers(odd: Unusual) -> None:
    """Accepted, and the rules lower those that were written out."""
    target = answer(odd.variant, odd.text, kernel=odd.kernel)[0].kernel
    if "```cuir" in odd.text:
        assert lower_kernel(choose_kernel(odd.kernel), lifted(odd.kernel), target, "bf16", 64).patch


def test_there_are_enough_unusual_answers() -> None:
    assert len({u.name for u in UNUSUAL}) >= 20
