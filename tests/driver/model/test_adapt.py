"""Whole adaptations with a model, from the command line."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from cubridge.cli import main
from cubridge.driver.adapt import adapt_unchecked
from cubridge.driver.folder import open_folder
from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lower import lower_kernel
from cubridge.driver.model.sidecar import sidecar_path
from cubridge.driver.model.use import Lowering, ModelUse
from cubridge.ir.diagnostics import CuError
from cubridge.ir.parser import parse
from cubridge.ir.printer import to_text
from cubridge.ir.spec import Shape
from cubridge.llm.budget import Budget
from cubridge.llm.reply import one_block
from cubridge.llm.transcript import Transcript, read_transcript
from tests.driver.model.foreign import lift_reply, write_foreign
from tests.driver.model.lowering_replies import edits, patched, tool
from tests.driver.model.talk import BOX, EXAMPLES, Scripted, cuir_reply, lifted

pytestmark = pytest.mark.slow

REPLIES = Path(__file__).parents[2] / "llm" / "replies"
SHAPE = "1,2,1,150,200,64"


def adapt(folder: Path, name: str, *options: str) -> int:
    return main(["adapt", str(EXAMPLES / f"{name}.py"), "--shape", SHAPE, "-o", str(folder), *options])


def verdicts(folder: Path) -> list[tuple[object, object]]:
    events = read_transcript(folder / "transcript.jsonl")
    return [(e["purpose"], e["accepted"]) for e in events if e["event"] == "verdict"]


def program(folder: Path, *options: str) -> str:
    return "command:" + shlex.join([sys.executable, "-m", "tests.driver.model.program", str(folder), *options])


def test_two_wrong_answers_then_a_right_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text that does not parse, a mask that hides keys, and the right pipeline."""
    assert adapt(tmp_path, "prefix_lm", "--proposer", f"replay:{REPLIES}/prefix_lm/2") == 0
    assert verdicts(tmp_path) == [("transfer", False), ("transfer", False), ("transfer", True)]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["accepted"]
    assert report["proposer"] == f"replay:{REPLIES}/prefix_lm/2"
    assert len(report["mutants"]) >= 4
    assert all(m["rejected_by"] for m in report["mutants"])
    capsys.readouterr()
    assert main(["transcript", "show", str(tmp_path / "transcript.jsonl")]) == 0
    page = capsys.readouterr().out
    for said in ("CU101", "is hidden, and should be visible", "transfer: accepted"):
        assert said in page


def test_a_second_variant(tmp_path: Path) -> None:
    assert adapt(tmp_path, "causal_bottom_right", "--proposer", f"replay:{REPLIES}/causal_bottom_right/2") == 0
    assert verdicts(tmp_path) == [("transfer", True)]


def test_a_program_drives_all_three_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its second answer fails first: what was accepted before is kept, and the same command goes on from there."""
    answers, out = tmp_path / "answers", tmp_path / "out"
    answers.mkdir()
    kernel = write_foreign(tmp_path)
    (answers / "lift.1.md").write_text(lift_reply())
    (answers / "transfer.1.md").write_text("no block")
    (answers / "transfer.2.md").write_text((REPLIES / "prefix_lm/1/transfer.1.md").read_text())
    (answers / "lower.1.md").write_text(edits("prefix_lm") + tool("check"))
    (answers / "lower.2.md").write_text(tool("finish"))
    options = ("--kernel", str(kernel), "--lowering", "model", "--allow-model-cuda")
    assert adapt(out, "prefix_lm", "--proposer", program(answers), *options) == 1
    assert "CU725" in capsys.readouterr().err
    options = (*options, "--accept", "runs")
    assert adapt(out, "prefix_lm", "--proposer", program(answers, "fail"), *options) == 1
    assert sidecar_path(choose_kernel(str(kernel)), "bf16", 64).exists()
    (answers / "transfer.count").write_text("1")
    assert adapt(out, "prefix_lm", "--proposer", program(answers), *options) == 0
    assert verdicts(out) == [("transfer", False), ("transfer", True), ("lower", False), ("lower", True)]
    report = json.loads((out / "report.json").read_text())
    assert report["lowered_by"].startswith("command:")
    assert report["basis"] == "judged by runs alone"
    assert any("runs alone show" in line for line in report["not_checked"])
    assert open_folder(out).lowered_by == report["lowered_by"]


def test_a_model_lowers_what_the_rules_cannot_say() -> None:
    """A local that C++ has no name for: the CuIR is right, and the text needs another."""
    target = cuir_reply("prefix_lm").replace("last", "short")
    provider = Scripted([target, edits("prefix_lm") + tool("finish")])
    budget = Budget(rounds=1, tokens=10_000_000)
    use = ModelUse(provider, budget, Transcript(), Lowering.RULES_THEN_MODEL, allow_cuda=True, sandbox=BOX)
    shape = Shape(1, 2, 1, 150, 200, 64)
    adapted = adapt_unchecked(EXAMPLES / "prefix_lm.py", shape=shape, model=use)
    assert (adapted.proposer, adapted.lowered_by) == ("scripted", "scripted")
    assert adapted.patched == patched("prefix_lm")
    with pytest.raises(CuError, match="CU604"):
        lower_kernel(adapted.kernel, adapted.lifted, parse(one_block(target, ("cuir",)).source), "bf16", 64)


def test_transfer_alone(tmp_path: Path) -> None:
    """`cuirc transfer` judges as adapt does."""
    source = tmp_path / "source.cuir"
    source.write_text(to_text(lifted().kernel))
    out = tmp_path / "target.cuir"
    replies = f"replay:{REPLIES}/prefix_lm/1"
    reference = str(EXAMPLES / "prefix_lm.py")
    assert main(["transfer", str(source), reference, "--shape", SHAPE, "--proposer", replies, "-o", str(out)]) == 0
    assert "(j < Lq // 4)" in out.read_text() or "Lq // 4 - 1" in out.read_text()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--proposer", "magic"), 2, "CU706"),
        (("--lowering", "model"), 2, "CU706"),
        (("--lowering", "model", "--proposer", "command:true"), 2, "CU717"),
        (("--proposer", "command:false"), 1, "status 1"),
        (("--proposer", "command:true"), 1, "CU703"),
        (("--proposer", "command:sleep 30", "--model-timeout", "0.2"), 6, "CU702"),
        (("--proposer", "command:cat", "--max-rounds", "1"), 6, "CU708"),
        (("--proposer", "command:cat", "--max-tokens", "10"), 6, "--max-tokens"),
        (("--proposer", "no-such-file.toml"), 1, "no-such-file.toml"),
    ],
)
def test_what_ends_without_a_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int, said: str
) -> None:
    assert adapt(tmp_path, "full", *options) == code
    printed = capsys.readouterr().err
    assert said in printed
    assert "repeat: cuirc adapt" in printed
    assert not (tmp_path / "kernel.cu").exists()


def test_settings_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "model.toml"
    settings.write_text('proposer = "command:cat"\nmax_rounds = 1\n[price]\ninput = 3\noutput = 15\n')
    assert adapt(tmp_path / "out", "full", "--proposer", str(settings)) == 6
    assert "CU708" in capsys.readouterr().err
    settings.write_text('proposer = "command:cat"\nkey = "secret"\n')
    assert adapt(tmp_path / "out", "full", "--proposer", str(settings)) == 1
    assert "no key `key`" in capsys.readouterr().err
