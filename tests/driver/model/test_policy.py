"""What a model wrote counts as far as it is proved, and further only where the user says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cubridge.cli import main
from cubridge.driver.model.policy import Accept, check_proved, check_runs
from cubridge.driver.model.transfer import transfer_by_model
from cubridge.ir.diagnostics import CuError
from cubridge.judge.proof.part import Part
from tests.driver.model.talk import BOX, EXAMPLES, conversation, cuir_reply, judge, lifted
from tests.support.readings import reading

TESTED = ("    s = tanh_approx(s * p.score_scale)", "    s = tanh_approx(minimum(s * p.score_scale, 20.0))")
"""A cap that is 1 to the last bit of fp32 before the clip: right for every number, and no identity."""


def answered(name: str, old: str, new: str, *accept: Accept) -> str:
    """The codes of what a changed answer of the rules is refused for; "" if it is taken."""
    text = cuir_reply(name)
    assert old in text
    talk = conversation(text.replace(old, new))
    try:
        transfer_by_model(lifted().kernel, reading(name), talk, BOX, judge(name, *accept))
    except CuError as error:
        return " ".join(f"{d.code}: {d.message}" for d in error.diagnostics if d.code not in ("CU705", "CU708"))
    return ""


def test_what_is_only_tested_is_refused_unless_accepted() -> None:
    said = answered("softcap", *TESTED)
    assert said.startswith("CU724: score is tested and not proved")
    assert answered("softcap", *TESTED, Accept.TESTED) == ""


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("prefix_lm", "j <= last", "(j <= last) & ((i * 31 % 1021 != 5) | (j < i))", "CU318: mask: i = "),
        (
            "prefix_lm",
            "keys.hi - keys.lo, 0)",
            "keys.hi - keys.lo - where(Lk % 1021 == 5, 1, 0), 0)",
            "CU318: keys: i = ",
        ),
        ("documents_causal", "doc_j == tile.doc_i", "doc_j % 6999881 == tile.doc_i % 6999881", "CU318: mask: i = "),
    ],
)
def test_a_counterexample_is_never_accepted(name: str, old: str, new: str, said: str) -> None:
    for accept in ((), (Accept.TESTED,)):
        assert said in answered(name, old, new, *accept)


def test_the_policy() -> None:
    check_proved((Part("mask"), Part("schedule", "unknown")), ())
    with pytest.raises(CuError, match="CU724"):
        check_proved((Part("rows", "unknown"),), (Accept.RUNS,))
    check_proved((Part("rows", "unknown"),), (Accept.TESTED,))
    with pytest.raises(CuError, match="CU318"):
        check_proved((Part("rows", "it differs", "i = 1"),), (Accept.TESTED, Accept.RUNS))
    with pytest.raises(CuError, match="CU725"):
        check_runs("lifting cannot read this text", (Accept.TESTED,))
    check_runs("lifting cannot read this text", (Accept.RUNS,))


def test_the_first_line_of_a_report_says_what_it_rests_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = tmp_path / "transfer.1.md"
    answer.write_text(cuir_reply("softcap").replace(*TESTED))
    call = ("adapt", str(EXAMPLES / "softcap.py"), "--shape", "1,2,1,150,200,64", "--proposer", f"replay:{tmp_path}")
    assert main([*call, "-o", str(tmp_path / "out"), "--accept", "tested"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith("proved but for score, weight, rows, finalize, LSE")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["points"] > 100_000
    assert any(line.startswith(f"  score: tested at {report['points']} points, because") for line in lines)
    assert report["basis"].startswith("proved but for score")
    assert report["parts"][0] == {"name": "mask", "because": "", "counterexample": ""}
