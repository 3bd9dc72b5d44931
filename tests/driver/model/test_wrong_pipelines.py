"""Nothing of a wrong pipeline is taken for proved: the policy refuses it, whatever the runs say."""

from __future__ import annotations

import pytest

from cubridge.driver.transfer import transfer_before_checks
from cubridge.judge.proof.prove import prove_part
from cubridge.passes.pipeline import parse_text
from tests.driver.model.talk import lifted
from tests.driver.model.wrong_pipelines import PIPELINES, WrongPipeline
from tests.support.readings import reading


@pytest.mark.parametrize("wrong", PIPELINES, ids=lambda w: w.pipeline[:70])
def test_a_wrong_pipeline_is_not_proved(wrong: WrongPipeline) -> None:
    spec = reading(wrong.variant).attention.spec
    target = transfer_before_checks(lifted().kernel, spec, parse_text(wrong.pipeline)).kernel
    assert not prove_part(target, spec, wrong.part).proved


def test_there_are_thirty() -> None:
    assert len(PIPELINES) == 30
