"""What models write, on a real GPU. Skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cubridge.driver.adapt import adapt
from cubridge.driver.model.use import Lowering, ModelUse
from cubridge.driver.suites.evaluate import evaluate
from cubridge.driver.suites.suite import read_suite
from cubridge.ir.diagnostics import CuError
from cubridge.ir.spec import Shape
from cubridge.judge.findings import Verdict
from cubridge.llm.budget import Budget
from cubridge.llm.transcript import Transcript
from tests.driver.model.lowering_replies import edits, tool
from tests.driver.model.talk import BOX, EXAMPLES, Scripted, cuir_reply

REPLIES = Path(__file__).parents[2] / "llm" / "replies"
SHAPE = Shape(2, 4, 2, 300, 300, 64)

pytestmark = [
    pytest.mark.gpu(80),
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0),
        reason="needs a GPU of compute capability 8.0",
    ),
]


def model(*replies: str) -> ModelUse:
    budget = Budget(rounds=1, tokens=10_000_000)
    return ModelUse(Scripted([*replies]), budget, Transcript(), Lowering.MODEL, allow_cuda=True, sandbox=BOX)


def test_text_of_a_model_is_launched_judged_and_given_to_the_user() -> None:
    made = adapt(
        EXAMPLES / "prefix_lm.py",
        shape=SHAPE,
        model=model(cuir_reply("prefix_lm"), edits("prefix_lm") + tool("finish")),
    )
    assert made.adapted.lowered_by == "scripted"
    assert made.report.accepted
    assert made.report.verdict is Verdict.GPU
    q, k, v = (torch.randn(2, h, 300, 64, device="cuda", dtype=torch.bfloat16) for h in (4, 2, 2))
    want = made.adapted.reference.traced.reference.function(q.double(), k.double(), v.double())
    assert torch.allclose(made.compile()(q, k, v).double(), want, atol=0.02)


def test_wrong_text_of_a_model_is_refused_on_the_gpu_too() -> None:
    wrong = edits("prefix_lm").replace("p.len_q / 4", "p.len_q / 5")
    assert wrong != edits("prefix_lm")
    with pytest.raises(CuError):
        adapt(EXAMPLES / "prefix_lm.py", shape=SHAPE, model=model(cuir_reply("prefix_lm"), wrong + tool("finish")))


def test_an_evaluation_has_speeds(tmp_path: Path) -> None:
    text = (REPLIES / "suite.toml").read_text()
    file = tmp_path / "suite.toml"
    file.write_text(
        text.replace('"interpreted"', '"gpu"')
        .replace("../../../examples", str(EXAMPLES))
        .replace('"replay:', f'"replay:{REPLIES}/')
    )
    (tmp_path / "out").mkdir()
    results = evaluate(read_suite(file), tmp_path / "out", lambda _: None)
    assert all(m.solved == 2 and m.speed is not None and m.speed > 0 for m in results.methods)
    table = json.loads((tmp_path / "out" / "results.json").read_text())
    assert all(p["speed"] > 0 for p in table["problems"])
    assert all(p.passes[-1] == 1.0 for p in results.problems)
