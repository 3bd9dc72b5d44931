"""Nothing of a wrong text is taken for proved: what lifting reads of it is asked for, not what it was written for."""

from __future__ import annotations

import pytest

from cubridge.driver.lift import lift_kernel
from cubridge.ir.source import SourceFile
from cubridge.judge.proof.prove import prove_part
from tests.driver.model.lowering_replies import chosen, patched
from tests.driver.model.wrong_texts import TEXTS, WrongText
from tests.support.readings import reading


@pytest.mark.parametrize("wrong", TEXTS, ids=lambda w: f"{w.part}: {w.new[:60]}")
def test_a_wrong_text_is_not_proved(wrong: WrongText) -> None:
    text = patched(wrong.variant).text.decode()
    assert wrong.old in text
    source = SourceFile("kernel.cu", text.replace(wrong.old, wrong.new, 1).encode())
    kernel = lift_kernel(chosen(), "bf16", 64, source).kernel
    assert not prove_part(kernel, reading(wrong.variant).attention.spec, wrong.part).proved


def test_there_are_thirty() -> None:
    assert len(TEXTS) == 30
