"""`cuirc faults`: what the table says of a kernel text, and what the emulator makes of faults that the engines let pass."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch

from cubridge.driver.kernels import choose_kernel
from cubridge.driver.lift import lift_kernel
from cubridge.driver.stopwatch import Step
from cubridge.driver.suites.fault_emulator import FaultEmulator, FaultTexts
from cubridge.driver.suites.faults import EMULATOR, SAME_OUTPUTS, FaultTable, ask_emulator, fault_table, find_emulator
from cubridge.engine.values.launch import Launch
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.spec import Shape
from cubridge.judge import tools
from cubridge.judge.faults.catalog import Fault, enumerate_faults
from cubridge.judge.faults.verdicts import Judgement, Slope, Trial, Verdict, sloped_inputs
from cubridge.judge.tools import Here

SHAPE = Shape(1, 2, 1, 130, 191, 64)


@cache
def emulator() -> FaultEmulator:
    """Of the sm80 kernel, one launch: two query tiles, three key tiles, the last of them cut."""
    chosen = choose_kernel("sm80")
    texts = FaultTexts.of(chosen, "bf16", 64, lift_kernel(chosen, "bf16", 64).kernel)
    inputs = sloped_inputs(SHAPE, 64, torch.bfloat16, Slope.FALLING)
    return FaultEmulator.of(Here(), texts, [Trial(Launch(SHAPE), inputs, inputs[0], None)])


def fault(name: str) -> Fault:
    return next(f for f in enumerate_faults(emulator().texts.source) if str(f) == name)


def judged_blindly(name: str) -> Judgement:
    """By engines that let everything pass."""
    return ask_emulator(Judgement(fault(name), Verdict.EQUIVALENT, reason="none was sought"), emulator())


def test_the_table_of_a_sample() -> None:
    said: list[str] = []
    steps: list[Step] = []
    table = fault_table("sm80", "bf16", 64, said.append, step=30, progress=steps.append)
    assert [s.done for s in steps] == [*range(1, steps[0].total + 1)]
    assert steps[0].what == "faults"
    text = table.to_text()
    assert table.missed == ()
    assert table.emulated == ()
    assert {j.emulator for j in table.equivalent} <= {SAME_OUTPUTS}
    assert text.count("    emulator: same outputs") == len(table.equivalent)
    assert "operator" in text
    assert "no change by construction" in text
    assert all(place is None or place.startswith("sm80/attention_forward.cu:") for place in _places(table))
    assert {entry["verdict"] for entry in table.to_json()} >= {"caught", "no change"}
    assert all((entry["emulator"] is None) == (entry["verdict"] != "equivalent") for entry in table.to_json())


def _places(table: FaultTable) -> list[str | None]:
    return [entry["place"] for entry in json.loads(json.dumps(table.to_json()))]


@pytest.mark.parametrize(
    "name,code,says",
    [
        ("delete: block_sync()", "CU833", "without a wait that orders it after the write"),
        ("index - 1: s = where(j - 1 < Lk, s, -inf)", "CU844", "out is another value"),
    ],
)
def test_what_the_engines_let_pass_the_emulator_catches(name: str, code: str, says: str) -> None:
    judgement = judged_blindly(name)
    assert (judgement.verdict, judgement.by) == (Verdict.CAUGHT, EMULATOR)
    assert judgement.diagnostic is not None
    assert judgement.diagnostic.code == code
    assert says in judgement.diagnostic.message
    table = FaultTable("sm80", (judgement,))
    assert (table.equivalent, table.missed) == ((), ())
    assert "caught by the emulator alone:" in table.to_text()
    assert table.to_text().splitlines()[3].split()[-4:] == ["1", "0", "0", "1"]
    assert [(e["by"], e["code"], e["emulator"]) for e in table.to_json()] == [
        (EMULATOR, code, judgement.diagnostic.message)
    ]


def test_a_survivor_stays_what_the_engines_say() -> None:
    judgement = judged_blindly("count - 1: wait_group(0)")
    assert (judgement.verdict, judgement.reason, judgement.emulator) == (
        Verdict.EQUIVALENT, "none was sought", SAME_OUTPUTS,
    )  # fmt: skip


def test_a_fault_that_the_text_cannot_say_stays_with_the_reason() -> None:
    judgement = judged_blindly("operand swapped: o = gemm(probs, smem.v[slot])")
    assert judgement.verdict is Verdict.EQUIVALENT
    assert judgement.emulator == "not asked, the text cannot say it: no expression of the text says it"
    assert judgement.emulator in FaultTable("sm80", (judgement,)).to_text()


def test_a_missed_fault_is_asked_too() -> None:
    missed = Judgement(fault("delete: block_sync()"), Verdict.MISSED, reason="values equal")
    assert ask_emulator(missed, emulator()).by == EMULATOR
    caught = Judgement(fault("delete: block_sync()"), Verdict.CAUGHT, "order")
    assert ask_emulator(caught, emulator()) is caught


def test_a_text_that_does_not_compile_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CuError(Diagnostic("CU831", "no such conversion"))

    own = emulator()
    monkeypatch.setattr(tools, "emulate", refuse)
    found = own.find(fault("delete: block_sync()"))
    assert found is not None and found.code == "CU831"


def test_without_an_emulator_survivors_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise CuError(Diagnostic("CU830", "no library is found"), exit_code=5)

    own, said = emulator(), list[str]()
    monkeypatch.setattr(tools, "emulate", missing)
    with pytest.raises(CuError):
        own.find(fault("delete: block_sync()"))
    reason = find_emulator(Here(), own.texts, (), said.append)
    assert said == ["without the emulator: no library is found"]
    survivor = Judgement(fault("count - 1: wait_group(0)"), Verdict.EQUIVALENT, reason="event graphs and values equal")
    judgement = ask_emulator(survivor, reason)
    assert judgement.emulator == "not asked: no library is found"
    assert replace(judgement, emulator="") == survivor
